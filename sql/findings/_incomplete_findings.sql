-- Findings about runs that are not whole: what is missing, or what ended the job.
-- @scope fleet
-- @grain run_id, kind, subject
-- @column kind VARCHAR | Kind of finding, as in findings.
-- @column brief VARCHAR | The same in a few words; of several, the first.
-- @column series VARCHAR | What the finding is about over several runs: those that end for one reason.
WITH miscounted AS (
    SELECT
        f.run_id,
        arg_min(f.text, (s.path, s.member)) AS first_told,
        string_agg(concat_ws('/', s.path, s.member) || ': ' || f.text, '; ' ORDER BY s.path, s.member) AS told
    FROM faults AS f
    JOIN sources AS s USING (run_id, source_id)
    WHERE f.severity = 'incomplete'
    GROUP BY f.run_id
),
lost_tests AS (
    SELECT
        run_id,
        from_json(try_cast(attributes['unfinished'] AS JSON), '[{"collective": "VARCHAR", "hosts": ["VARCHAR"]}]') AS tests,
        list_sort(list_distinct(tests[1].hosts)) AS hosts,
        concat(
            CASE len(tests)
                WHEN 1 THEN 'its bandwidth test'
                ELSE format('{} of its bandwidth tests have not ended', len(tests))
            END,
            CASE WHEN len(tests) > 1 AND coalesce(tests[1].collective, hosts[1]) IS NOT NULL THEN ', the first one' END,
            ' of ' || tests[1].collective,
            ' on ' || nullif(array_to_string(hosts[:3], ', '), ''),
            CASE WHEN len(hosts) > 3 THEN format(' and {} more', len(hosts) - 3) ELSE '' END,
            CASE len(tests) WHEN 1 THEN ' has not ended' ELSE '' END
        ) AS told
    FROM runs
    WHERE attributes['unfinished'] IS NOT NULL
),
endings AS (
    -- Of a warning of NCCL its host and its words, without the place in the code.
    SELECT
        run_id, attributes['ended_with'] AS told,
        regexp_replace(told, '^(\S+?):\d+:\d+ \[.*NCCL WARN ', '\1: ') AS words,
        CASE WHEN len(words) > 80 THEN regexp_replace(words[:80], '\S*$', '...') ELSE words END AS short
    FROM runs
)
SELECT
    c.run_id, 'incomplete' AS kind, 'warning' AS severity, 'incomplete' AS gate, 'run' AS subject,
    concat('run', ' ' || r.attributes['ended_by']) AS series,
    CASE
        WHEN m.told IS NOT NULL THEN m.first_told
        WHEN c.ranks_seen IS NULL THEN coalesce(
            CASE WHEN try_cast(r.attributes['last_step'] AS BIGINT) < 0
                THEN format('its log ends before the first of {} steps', r.attributes['planned_steps'])
                ELSE format('its log ends with step {} of {}', r.attributes['last_step'], r.attributes['planned_steps'])
            END || CASE WHEN regexp_matches(e.short, '^[\w.]*(Error|Exception): ') THEN ', then ' || e.short ELSE '' END,
            b.told,
            'its log ends with ' || e.short,
            'the input is shorter than it declares'
        )
        WHEN c.ranks_seen = 0 THEN 'no record of a rank was read'
        WHEN c.ranks_seen < c.ranks_expected
            THEN format('{} of {} ranks were seen', c.ranks_seen, c.ranks_expected)
        WHEN u.told IS NOT NULL THEN format('step {} of {} has not ended', u.step, u.told)
        WHEN l.told IS NOT NULL THEN format('step {} of {} is missing', l.step, l.told)
        ELSE coalesce('its log ends with ' || e.short, 'its input has not ended')
    END AS brief,
    concat('The run is incomplete: ', coalesce(m.told, concat(coalesce(replace(brief, e.short, e.told), brief), CASE
        WHEN r.attributes['planned_steps'] IS NOT NULL AND NOT contains(brief, e.short) THEN ', then ' || e.told
        WHEN b.told IS NOT NULL THEN '; its log ends with ' || e.told
        WHEN c.ranks_seen < c.ranks_expected THEN '; missing: ' || coalesce(s.told, p.told)
    END)), '; its job had begun again ' || CASE
        WHEN c.restarts = 1 THEN 'once before'
        WHEN c.restarts > 1 THEN format('{} times before', c.restarts)
    END, '; it went on in ' || w.label, '.') AS evidence,
    coalesce(replace(r.attributes['ended_by'], '_', ' '), 'input') AS cause,
    CASE
        WHEN m.told IS NOT NULL THEN 'Generate or copy the file again, and ingest it.'
        WHEN r.attributes['ended_by'] IS NOT NULL THEN CASE r.attributes['ended_by']
            WHEN 'out_of_memory' THEN 'Use less memory per device: a smaller micro-batch, more recomputation or sharding.'
            WHEN 'device_error' THEN 'Check the device that the log names: Xid and ECC errors in the kernel log. Drain its host if it comes again.'
            WHEN 'link_error' THEN 'Check the port, cable and counters of the host that the log names.'
            WHEN 'loss_not_finite' THEN 'Go back to an earlier checkpoint; look at gradients, learning rate and data before it.'
            WHEN 'collective_timeout' THEN 'See what the ranks did that print no timeout: their stacks, and the calls they were in.'
            WHEN 'network_error' THEN 'See which process or link failed first: warnings of NCCL above it name host and device.'
            WHEN 'nccl_error' THEN 'Run it again with NCCL_DEBUG=WARN: the warning of NCCL before the error says why.'
            WHEN 'node_failure' THEN 'See why the host that the log names failed; drain it if it comes again.'
            WHEN 'killed' THEN 'See who killed the process: the kernel log of its host says whether its memory was used up.'
            WHEN 'host_out_of_memory' THEN 'Give the job more memory on the host, or use less: workers of the loader, pinned memory.'
            WHEN 'error' THEN 'See the first error of its processes above this line.'
            ELSE 'See why the scheduler ended the job: its time limit, a preemption, or a user.'
        END
        WHEN c.ranks_seen < c.ranks_expected THEN 'Add the missing files, or see why these ranks wrote none.'
        ELSE 'Ingest the input again when it is whole; if the job ended here, nothing more will come.'
    END AS advice
FROM coverage AS c
JOIN runs AS r USING (run_id)
LEFT JOIN _continued_runs AS n USING (run_id)
LEFT JOIN _run_names AS w ON w.run_id = n.continued_by
LEFT JOIN miscounted AS m USING (run_id)
LEFT JOIN lost_tests AS b USING (run_id)
JOIN endings AS e USING (run_id)
LEFT JOIN _gaps AS s ON s.run_id = c.run_id AND s.gap = 'stages'
LEFT JOIN _gaps AS p ON p.run_id = c.run_id AND p.gap = 'ranks'
LEFT JOIN _gaps AS u ON u.run_id = c.run_id AND u.gap = 'cut'
LEFT JOIN _gaps AS l ON l.run_id = c.run_id AND l.gap = 'absent'
WHERE NOT c.complete AND NOT coalesce(r.simulated, false)
    -- Of a job of unknown size ranks may be missing, and coverage says so; here is what surely is.
    AND (
        c.ranks_seen IS NULL OR c.ranks_seen = 0 OR c.ranks_expected IS NOT NULL
        OR coalesce(m.told, u.told, l.told, e.told) IS NOT NULL
    )
    AND c.run_id NOT IN (SELECT run_id FROM _running_logs)
    -- A job that went on lacks nothing; what broke it is still to be seen to.
    AND NOT (n.continued_by IS NOT NULL AND coalesce(r.attributes['ended_by'], 'cancelled') = 'cancelled')
    -- Steps that a rank lacks are named below.
    AND NOT (
        coalesce(c.ranks_seen >= c.ranks_expected, false) AND u.told IS NULL
        AND c.run_id IN (SELECT run_id FROM _contradictions WHERE kind = 'steps')
    )
