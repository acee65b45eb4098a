-- Findings about ranks, devices and hosts: straggler, suspect, recurring, slow_node.
-- @scope fleet
-- @grain run_id, kind, subject
-- @column series VARCHAR | What the finding is about over several runs, as in straggler_history.
-- @column kind VARCHAR | Kind of finding, as in findings.
-- @column lost_ratio DOUBLE | Part of the steps' time that was lost, as cost_basis says.
-- @column slowdown DOUBLE | As in straggler_ranks; of a host the median of its ranks.
-- @column subject VARCHAR | What the finding is about.
-- @column evidence VARCHAR | What was seen, in one sentence that begins with the subject.
WITH placed AS (
    SELECT
        *,
        coalesce(
            concat_ws(' ', 'host ' || host, CASE WHEN host IS NOT NULL THEN 'device ' || device END),
            ''
        ) AS place,
        CASE WHEN place = '' THEN concat('rank ', rank) ELSE place END AS series,
        CASE
            WHEN host_ranks > 0 AND host_slow_ranks = host_ranks THEN 'node'
            WHEN forward_slowdown IS NULL OR backward_slowdown IS NULL THEN 'unclear'
            WHEN least(forward_slowdown, backward_slowdown) >= 1.05
                AND greatest(forward_slowdown, backward_slowdown)
                    <= 1.25 * least(forward_slowdown, backward_slowdown) THEN 'device'
            ELSE 'work'
        END AS cause,
        concat_ws(
            ', and ',
            CASE cause
                WHEN 'device' THEN format(
                    'forward and backward are slow alike ({:.2f} and {:.2f} times)',
                    forward_slowdown, backward_slowdown
                )
                WHEN 'work' THEN format(
                    'forward_step took {:.2f} times as long as its peers, backward_step {:.2f} times',
                    forward_slowdown, backward_slowdown
                )
            END,
            CASE
                WHEN host_ranks = 0 THEN NULL
                WHEN host_slow_ranks NOT IN (0, host_ranks) THEN format(
                    '{} of the {} other ranks on {} {} slow too',
                    host_slow_ranks, host_ranks, host, CASE host_slow_ranks WHEN 1 THEN 'is' ELSE 'are' END
                )
                ELSE CASE host_ranks
                    WHEN 1 THEN format('the other rank on {} is', host)
                    ELSE format('{} {} other ranks on {} are',
                        CASE host_slow_ranks WHEN 0 THEN 'the' ELSE 'all' END, host_ranks, host)
                END || CASE host_slow_ranks WHEN 0 THEN ' fine' ELSE ' slow too' END
            END
        ) AS grounds,
        'rank ' || rank || coalesce(' on ' || nullif(place, ''), '') AS named
    FROM _slow_ranks
),
advised AS (
    SELECT
        *,
        concat(
            CASE cause
                WHEN 'device' THEN 'Likely the device'
                WHEN 'node' THEN 'Likely the host'
                WHEN 'work' THEN 'Likely its work or its data, not the device'
                ELSE 'The cause is unclear'
            END,
            coalesce(': ' || nullif(grounds, ''), ''),
            '. ',
            CASE cause
                WHEN 'node' THEN format('Compare {} with the other hosts, or drain it.', host)
                WHEN 'work' THEN format('Compare what {} computes with its peers.', named)
                ELSE format('Check clocks, temperature and ECC of {}, or drain it.', named)
            END
        ) AS advice
    FROM placed
)
SELECT
    run_id,
    verdict AS kind,
    CASE verdict WHEN 'straggler' THEN 'critical' ELSE 'warning' END AS severity,
    verdict AS gate,
    concat('rank ', rank) AS subject,
    series, rank, stage, host, device,
    slowest_op AS op,
    evidence, slowdown, lost_ratio, cost_basis, cost_bound, cause, advice
FROM advised
UNION ALL BY NAME
-- A device or host names the worst of its slow ranks.
SELECT
    a.run_id, 'recurring' AS kind, 'critical' AS severity, 'recurring' AS gate,
    h.subject, h.subject AS series,
    a.rank, a.stage, a.host, a.device, h.evidence, a.slowdown, a.lost_ratio, a.cost_basis,
    a.cost_bound, a.cause, a.advice
FROM straggler_history AS h
JOIN runs AS r USING (config)
JOIN advised AS a ON a.run_id = r.run_id AND a.series = h.subject
WHERE h.verdict = 'recurring' AND list_contains(h.slow_run_ids, a.run_id)
QUALIFY row_number() OVER (
    PARTITION BY a.run_id, h.subject ORDER BY a.lost_ratio DESC NULLS LAST, a.slowdown DESC, a.rank
) = 1
UNION ALL BY NAME
SELECT
    run_id, 'slow_node' AS kind, 'critical' AS severity, concat('host ', host) AS subject,
    subject AS series, host,
    format(
        'host {}: all of its {} ranks that could be compared take 5 % longer than their peers or more,'
            || ' {:.2f} times as long in the median, and not all ranks of other hosts do.',
        host, len(slow_ranks), slowdown
    ) AS evidence,
    slowdown, lost_ratio, cost_basis, cost_bound, 'node' AS cause,
    format('Compare {} with the other hosts: clocks, cooling, other jobs on it. Drain it.', host)
        AS advice
FROM _slow_hosts
