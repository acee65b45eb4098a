-- What tells the cause of a slow rank: which of its operations are slow, and whether its host's other ranks are.
-- @internal
-- @grain run_id, rank
-- @column forward_slowdown DOUBLE | forward_step over the peers' median, summed over the steps compared.
-- @column backward_slowdown DOUBLE | The same of backward_step.
-- @column host_ranks BIGINT ranks | Other ranks of the run on the same host that could be compared; 0 where no host is known.
-- @column host_slow_ranks BIGINT ranks | Those of them that are slow.
-- @column lost_ratio DOUBLE | Time lost over the time of the steps compared.
-- @column verdict VARCHAR | straggler or suspect.
-- @column slowdown DOUBLE | Own compute over the median of the peers, median over steps.
-- @column time_lost_ms DOUBLE | Own compute over the peers' median, summed over steps.
-- @column evidence VARCHAR | What was seen, in one sentence that begins with the subject.
WITH slow AS (
    SELECT run_id, rank, stage, host, device, verdict, slowdown, time_lost_ms, evidence, reason
    FROM straggler_ranks
    WHERE verdict IN ('straggler', 'suspect')
),
hosts AS (
    SELECT
        run_id, host,
        count(*) AS compared_ranks,
        count(*) FILTER (verdict IN ('straggler', 'suspect')) AS slow_ranks
    FROM straggler_ranks
    WHERE host IS NOT NULL AND verdict <> 'not_comparable'
    GROUP BY run_id, host
),
ops_compared AS (
    SELECT
        run_id, rank,
        op,
        ratio(ordered_sum(own_ms), ordered_sum(peers_median_ms)) AS slowdown
    FROM straggler_steps
    WHERE slowdown IS NOT NULL AND NOT warmup AND op IN ('forward_step', 'backward_step')
    GROUP BY run_id, rank, op
)
SELECT
    s.*,
    f.slowdown AS forward_slowdown,
    b.slowdown AS backward_slowdown,
    coalesce(h.compared_ranks - 1, 0) AS host_ranks,
    coalesce(h.slow_ranks - 1, 0) AS host_slow_ranks,
    ratio(s.time_lost_ms, t.steps_ms) AS lost_ratio
FROM slow AS s
LEFT JOIN ops_compared AS f ON f.run_id = s.run_id AND f.rank = s.rank AND f.op = 'forward_step'
LEFT JOIN ops_compared AS b ON b.run_id = s.run_id AND b.rank = s.rank AND b.op = 'backward_step'
LEFT JOIN hosts AS h ON h.run_id = s.run_id AND h.host = s.host
LEFT JOIN _run_spans AS t ON t.run_id = s.run_id
