-- Clock that the times of a rank were read from: ranks of one host share it, hosts do not.
-- A run that names no host is taken to have one, unless its own communication says otherwise: then
-- every rank has a clock of its own. A trace of named streams has been put on one clock already.
-- @grain run_id, rank
-- @column clock VARCHAR | Host of the rank; `*` where the run is on one unnamed host; else `rank N`.
WITH contradicted AS (
    -- Starts are good to some tenths of a ms. One odd call proves nothing unless there is no other.
    SELECT run_id
    FROM (
        SELECT
            run_id,
            count(*) AS calls,
            count(*) FILTER (early_ns > 1000000) AS odd_calls
        FROM _comm_calls
        WHERE early_ns IS NOT NULL
        GROUP BY run_id, group_kind, collective, lowest_rank, lowest_sends
    ) AS groups
    ANTI JOIN (SELECT DISTINCT run_id FROM ops WHERE stream = 'compute') AS placed USING (run_id)
    GROUP BY run_id
    HAVING sum(odd_calls) FILTER (2 * odd_calls >= calls) >= least(2, sum(calls))
),
starts AS (
    SELECT run_id, rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM _rank_spans
    GROUP BY run_id, rank
)
SELECT
    s.run_id,
    s.rank,
    s.start_ns,
    s.end_ns,
    CASE
        WHEN p.host IS NOT NULL THEN p.host
        WHEN max(p.host) OVER (PARTITION BY s.run_id) IS NULL AND c.run_id IS NULL THEN '*'
        ELSE concat('rank ', s.rank)
    END AS clock
FROM starts AS s
LEFT JOIN _rank_places AS p USING (run_id, rank)
LEFT JOIN contradicted AS c USING (run_id)
