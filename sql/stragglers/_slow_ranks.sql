-- Slow ranks of a run: the time that they lost, and whether the other ranks of their host are slow too.
-- @grain run_id, rank
-- @column host_ranks BIGINT ranks | Other ranks of the run on the same host that could be compared; 0 where no host is known.
-- @column host_slow_ranks BIGINT ranks | Those of them that are slow, or slower than their peers by 5 %.
-- @column lost_ratio DOUBLE | Part of the steps that was lost: by replay what all slower peers cost the run, else the rank's excess over the steps' time.
-- @column cost_basis VARCHAR | Where lost_ratio comes from: replay or bound.
-- @column cost_bound VARCHAR | at_most or at_least, as in findings.
-- @column verdict VARCHAR | straggler or suspect.
WITH hosts AS (
    SELECT
        run_id, host,
        count(*) AS compared_ranks,
        count(*) FILTER (slowdown >= 1.05 OR verdict IN ('straggler', 'suspect')) AS slow_ranks
    FROM straggler_ranks
    WHERE host IS NOT NULL AND verdict <> 'not_comparable'
    GROUP BY run_id, host
),
-- Where half of a stage is slow, so is the median that the replay takes for its peers.
half_slow AS (
    SELECT DISTINCT run_id
    FROM straggler_ranks
    WHERE verdict <> 'not_comparable'
    GROUP BY run_id, stage
    HAVING 2 * count(*) FILTER (verdict IN ('straggler', 'suspect')) >= count(*)
),
asynchronous AS (
    SELECT DISTINCT run_id FROM collective_bandwidth WHERE overlapped
)
SELECT
    s.run_id, s.rank, s.stage, s.host, s.device, s.verdict, s.evidence,
    s.slowdown, s.slowest_op, s.forward_slowdown, s.backward_slowdown,
    coalesce(h.compared_ranks - 1, 0) AS host_ranks,
    coalesce(h.slow_ranks - 1, 0) AS host_slow_ranks,
    CASE
        WHEN w.reason = 'no_slowdown' THEN 0
        -- Of ranks that are slow beside each other fixing one alone saves nothing.
        WHEN w.lost_ms IS NOT NULL THEN ratio((x.t_ms - x.peer_ms) * x.steps, t.steps_ms)
        ELSE ratio(s.time_lost_ms, t.steps_ms)
    END AS lost_ratio,
    CASE WHEN w.reason = 'no_slowdown' OR w.lost_ms IS NOT NULL THEN 'replay' ELSE 'bound' END
        AS cost_basis,
    CASE
        -- The excess leaves out the kernels within asynchronous calls, so it can be too small, too.
        WHEN cost_basis = 'bound' THEN if(a.run_id IS NULL, 'at_most', NULL)
        -- The median of peers lies between a slow rank and its only peer. Of an asynchronous call the
        -- peer's part before the slow rank starts it is cut off, so there it can lie below both.
        WHEN (w.reason = 'one_peer' OR m.run_id IS NOT NULL) AND a.run_id IS NULL THEN 'at_least'
    END AS cost_bound
FROM straggler_ranks AS s
LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.host = s.host
LEFT JOIN _run_spans AS t ON t.run_id = s.run_id
LEFT JOIN whatif_ranks AS w ON w.run_id = s.run_id AND w.rank = s.rank
LEFT JOIN whatif_runs AS x ON x.run_id = s.run_id
LEFT JOIN asynchronous AS a ON a.run_id = s.run_id
LEFT JOIN half_slow AS m ON m.run_id = s.run_id
WHERE s.verdict IN ('straggler', 'suspect')
