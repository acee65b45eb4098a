-- Hosts of a run on which every rank that could be compared is slow, while not all ranks of other hosts are.
-- @grain run_id, host
-- @column slow_ranks INTEGER[] | Its ranks: two or more, all of them slow.
-- @column slowdown DOUBLE | Median of their slowdowns.
-- @column lost_ratio DOUBLE | Part of the steps that the worst of them lost, as cost_basis says.
-- @column cost_basis VARCHAR | Where it comes from, as in findings.
WITH compared AS (
    SELECT
        s.run_id, s.host, s.rank, s.slowdown,
        s.verdict IN ('straggler', 'suspect') AS slow,
        l.lost_ratio, l.cost_basis, l.cost_bound
    FROM straggler_ranks AS s
    LEFT JOIN _slow_ranks AS l USING (run_id, rank)
    WHERE s.verdict <> 'not_comparable'
),
hosts AS (
    SELECT
        run_id, host,
        list(rank ORDER BY rank) AS slow_ranks,
        median(slowdown) AS slowdown,
        arg_min(
            {'lost_ratio': lost_ratio, 'basis': cost_basis, 'bound': cost_bound},
            (-lost_ratio, rank)
        ) AS worst,
        count(*) >= 2 AND bool_and(slow) AS slow,
        bool_or(NOT slow) AS fine
    FROM compared
    WHERE host IS NOT NULL
    GROUP BY run_id, host
)
SELECT
    run_id, host, slow_ranks, slowdown, worst.lost_ratio AS lost_ratio,
    worst.basis AS cost_basis, worst.bound AS cost_bound
FROM hosts
WHERE slow
    AND run_id IN (SELECT run_id FROM hosts WHERE fine)
