-- Hosts of a run whose ranks that could be compared are slow, while not all ranks of other hosts are.
-- Noise leaves ranks of a slow host below the bound: 5 % over their peers is enough beside as many that are slow.
-- @grain run_id, host
-- @column slow_ranks INTEGER[] | Its ranks: two or more.
-- @column slowdown DOUBLE | Median of their slowdowns.
-- @column lost_ratio DOUBLE | Part of the steps that the worst of them lost, as cost_basis says.
-- @column cost_basis VARCHAR | Where it comes from, as in findings.
WITH hosts AS (
    SELECT
        s.run_id, s.host,
        list(s.rank ORDER BY s.rank) AS slow_ranks,
        median(s.slowdown) AS slowdown,
        arg_min(
            {'lost_ratio': l.lost_ratio, 'basis': l.cost_basis, 'bound': l.cost_bound},
            (-l.lost_ratio, s.rank)
        ) AS worst,
        count(*) >= 2 AND 2 * count(l.verdict) >= count(*)
            AND bool_and(s.slowdown >= 1.05 OR l.verdict IS NOT NULL) AS slow,
        bool_or(s.slowdown < 1.05 AND l.verdict IS NULL) AS fine
    FROM straggler_ranks AS s
    LEFT JOIN _slow_ranks AS l USING (run_id, rank)
    WHERE s.verdict <> 'not_comparable' AND s.host IS NOT NULL
    GROUP BY s.run_id, s.host
)
SELECT
    run_id, host, slow_ranks, slowdown, worst.lost_ratio AS lost_ratio,
    worst.basis AS cost_basis, worst.bound AS cost_bound
FROM hosts
WHERE slow
    AND run_id IN (SELECT run_id FROM hosts WHERE fine)
