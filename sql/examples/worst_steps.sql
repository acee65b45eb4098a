-- Which steps were the worst, and why?
-- @topic steps
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 10 | Rows at most.
-- Steps by how far they are above their run's median, warm-up left out. `slow_rank` is the rank
-- that exceeded its peers most, `odd_layer` the layer furthest from its own median; neither: look
-- at `collective_time` and at what else ran on the hosts.

WITH steps AS (
    SELECT *, step_ms / median(step_ms) OVER (PARTITION BY run_id) - 1 AS above_median_ratio
    FROM step_stats
    WHERE NOT warmup AND step_ms IS NOT NULL AND contains(run_id, $run)
),
culprits AS (
    SELECT run_id, step, rank, excess_ms
    FROM straggler_steps
    WHERE culprit
),
layers AS (
    SELECT
        run_id,
        step,
        max_by(layer, abs(deviation_ratio)) AS layer,
        max_by(deviation_ratio, abs(deviation_ratio)) AS deviation_ratio
    FROM layer_steps
    WHERE outlier
    GROUP BY run_id, step
)
SELECT
    s.run_id,
    s.step,
    s.step_ms,
    s.above_median_ratio,
    s.outlier,
    s.busiest_stage,
    c.rank AS slow_rank,
    c.excess_ms,
    l.layer AS odd_layer,
    l.deviation_ratio
FROM steps AS s
LEFT JOIN culprits AS c USING (run_id, step)
LEFT JOIN layers AS l USING (run_id, step)
ORDER BY s.above_median_ratio DESC, s.run_id, s.step
LIMIT $top
