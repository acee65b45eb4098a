-- Hosts of a run on which every rank that could be compared is slow, while ranks of other hosts are not.
-- @internal
-- @grain run_id, host
-- @column slow_ranks INTEGER[] | Its ranks: two or more, all of them slow.
-- @column slowdown DOUBLE | Median of their slowdowns.
-- @column lost_ratio DOUBLE | Time that the worst of them lost over the time of the steps compared.
WITH compared AS (
    SELECT
        s.run_id, s.host, s.rank, s.slowdown,
        s.verdict IN ('straggler', 'suspect') AS slow,
        l.lost_ratio
    FROM straggler_ranks AS s
    LEFT JOIN _slow_ranks AS l USING (run_id, rank)
    WHERE s.verdict <> 'not_comparable'
),
hosts AS (
    SELECT
        run_id, host,
        list(rank ORDER BY rank) AS slow_ranks,
        median(slowdown) AS slowdown,
        max(lost_ratio) AS lost_ratio,
        count(*) >= 2 AND bool_and(slow) AS slow,
        bool_or(NOT slow) AS fine
    FROM compared
    WHERE host IS NOT NULL
    GROUP BY run_id, host
)
SELECT run_id, host, slow_ranks, slowdown, lost_ratio
FROM hosts
WHERE slow
    AND run_id IN (SELECT run_id FROM hosts WHERE fine)
