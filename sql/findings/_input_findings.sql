-- Findings about the input: incomplete runs, contradictions, rejected lines.
-- @internal
-- @scope fleet
-- @grain run_id, kind, subject
-- @column kind VARCHAR | Kind of finding, as in findings.
-- @column gate VARCHAR | Gate that holds it against the run; NULL where none does.
-- @column subject VARCHAR | What the finding is about.
-- @column evidence VARCHAR | What was seen, in one sentence that begins with the subject.
-- @column cause VARCHAR | Likely cause.
-- @column advice VARCHAR | What to do.
WITH miscounted AS (
    SELECT f.run_id, string_agg(concat_ws('/', s.path, s.member) || ': ' || f.text, '; ' ORDER BY s.path, s.member) AS told
    FROM faults AS f
    JOIN sources AS s USING (run_id, source_id)
    WHERE f.severity = 'incomplete'
    GROUP BY f.run_id
),
lost_tests AS (
    SELECT
        run_id,
        from_json(
            try_cast(attributes['unfinished'] AS JSON), '[{"collective": "VARCHAR", "hosts": ["VARCHAR"]}]'
        ) AS tests,
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
)
SELECT
    c.run_id, 'incomplete' AS kind, 'warning' AS severity, 'incomplete' AS gate, 'run' AS subject,
    concat('The run is incomplete: ', CASE
        WHEN m.told IS NOT NULL THEN m.told
        WHEN c.ranks_seen IS NULL THEN coalesce(
            format('its log ends with step {} of {}', r.attributes['last_step'], r.attributes['planned_steps']),
            b.told,
            'the input is shorter than it declares'
        )
        WHEN c.ranks_expected IS NULL
            THEN format(
                '{} seen; the world size is unknown',
                CASE c.ranks_seen WHEN 1 THEN '1 rank was' ELSE c.ranks_seen || ' ranks were' END
            )
        WHEN c.ranks_seen < c.ranks_expected THEN concat(
            format('{} of {} ranks were seen', c.ranks_seen, c.ranks_expected),
            coalesce('; missing: ' || coalesce(s.told, p.told), '')
        )
        WHEN u.told IS NOT NULL THEN format('step {} of {} has not ended', u.step, u.told)
        WHEN l.told IS NOT NULL THEN format('step {} of {} is missing', l.step, l.told)
        ELSE 'its input has not ended'
    END, '.') AS evidence,
    'input' AS cause,
    CASE
        WHEN m.told IS NOT NULL THEN 'Generate or copy the file again, and ingest it.'
        WHEN c.ranks_expected IS NULL AND c.ranks_seen IS NOT NULL
            THEN 'Give the size of the job: --set world_size=N.'
        WHEN c.ranks_seen < c.ranks_expected
            THEN 'Add the missing files, or see why these ranks wrote none.'
        ELSE 'Ingest the input again when it is whole; if the job ended here, nothing more will come.'
    END AS advice
FROM coverage AS c
JOIN runs AS r USING (run_id)
LEFT JOIN miscounted AS m USING (run_id)
LEFT JOIN lost_tests AS b USING (run_id)
LEFT JOIN _gaps AS s ON s.run_id = c.run_id AND s.gap = 'stages'
LEFT JOIN _gaps AS p ON p.run_id = c.run_id AND p.gap = 'ranks'
LEFT JOIN _gaps AS u ON u.run_id = c.run_id AND u.gap = 'cut'
LEFT JOIN _gaps AS l ON l.run_id = c.run_id AND l.gap = 'absent'
WHERE NOT c.complete AND NOT coalesce(r.simulated, false)
    -- Steps that a rank lacks are named below.
    AND NOT (
        coalesce(c.ranks_seen >= c.ranks_expected, false) AND u.told IS NULL
        AND c.run_id IN (SELECT run_id FROM _contradictions WHERE kind = 'steps')
    )
UNION ALL BY NAME
-- Lost steps and lines are missing data, doubled lines a fault; other contradictions only say with what care to read the figures.
SELECT
    run_id, 'contradiction' AS kind,
    CASE what WHEN 'clocks' THEN 'notice' ELSE 'warning' END AS severity,
    CASE WHEN what IN ('steps', 'lost') THEN 'incomplete' WHEN what = 'doubled' THEN 'faults' END
        AS gate,
    CASE what WHEN 'clocks' THEN 'clocks' ELSE split_part(sentence, ':', 1) END AS subject,
    concat(
        CASE what WHEN 'clocks' THEN 'clocks: ' ELSE '' END,
        array_to_string(list(sentence ORDER BY rank, sentence)[:3], '; '),
        CASE WHEN count(*) > 3 THEN format('; and {} more', count(*) - 3) ELSE '' END,
        '.'
    ) AS evidence,
    'input' AS cause,
    CASE what
        WHEN 'steps' THEN 'See why the trace lacks whole steps: a lost block, or a tracer that began later.'
        WHEN 'sizes' THEN 'Give sizes that fit with --set, or see who named these.'
        WHEN 'changed' THEN 'Cut the file where the second job begins, and let each start of a job write a file of its own.'
        WHEN 'lost' THEN 'Ingest a copy that has these lines, or see where the tracer or the disk lost them.'
        WHEN 'doubled' THEN 'Ingest a copy that has each line once, or see who wrote them twice.'
        WHEN 'stages' THEN 'Give the layout of the job with --set, or see who wrote these stages.'
        ELSE 'Name the hosts of the ranks: --hosts or --run-pattern.'
    END AS advice
FROM (SELECT run_id, kind AS what, rank, sentence FROM _contradictions)
GROUP BY run_id, what, subject
UNION ALL BY NAME
SELECT
    run_id, 'rejects' AS kind, 'warning' AS severity, 'rejects' AS gate, 'lines' AS subject,
    format(
        'Lines rejected: {} ({:.2f} % of its record lines; {}), the first at {}:{}: {}',
        rejected, 100 * rejected_ratio, reasons, path, line, text
    ) AS evidence,
    'input' AS cause,
    'Read them: FROM rejects. A new spelling needs a newer tracelake; torn lines need another copy.'
        AS advice
FROM _rejected_lines
