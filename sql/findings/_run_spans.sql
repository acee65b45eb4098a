-- What a run took: its steps and the GPU hours that they cost.
-- @internal
-- @grain run_id
-- @column steps_ms DOUBLE ms | Time of the steps with a time, warm-up left out.
-- @column step_p50_ms DOUBLE ms | Their median.
-- @column gpu_hours DOUBLE GPU hours | That time on every rank of the job; NULL where the size of the job is unknown.
SELECT
    s.run_id,
    any_value(r.world_size) AS world_size,
    ordered_sum(s.step_ms) AS steps_ms,
    quantile_cont(s.step_ms, 0.5) AS step_p50_ms,
    any_value(r.world_size) * ordered_sum(s.step_ms) / 3.6e6 AS gpu_hours
FROM step_stats AS s
JOIN runs AS r USING (run_id)
WHERE NOT s.warmup AND s.step_ms IS NOT NULL
GROUP BY s.run_id
