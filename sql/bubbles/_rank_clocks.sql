-- Clock that the times of a rank were read from: ranks of one host share it, hosts do not.
-- @internal
-- @grain run_id, rank
-- @column clock VARCHAR | Host of the rank; `*` where the run names no host at all, and is taken to have one; NULL where only other ranks have a host.
WITH hosts AS (
    SELECT o.run_id, o.rank, max(s.host) AS host
    FROM (SELECT DISTINCT run_id, rank, source_id FROM ops) AS o
    LEFT JOIN sources AS s USING (run_id, source_id)
    GROUP BY o.run_id, o.rank
)
SELECT
    run_id,
    rank,
    CASE WHEN max(host) OVER (PARTITION BY run_id) IS NULL THEN '*' ELSE host END AS clock
FROM hosts
