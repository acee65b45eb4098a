-- What a run took: its steps and the GPU hours that they cost.
-- A log that prints one step in several says nothing of those between: each counts as the median.
-- @grain run_id
-- @column steps_ms DOUBLE ms | Time of the steps with a time, warm-up left out.
-- @column step_p50_ms DOUBLE ms | Their median.
-- @column job_ms DOUBLE ms | Time of all steps of the job, warm-up left out.
-- @column gpu_hours DOUBLE GPU hours | That time on every rank; NULL where the size of the job is unknown.
WITH timed AS (
    SELECT
        run_id,
        ordered_sum(CASE WHEN NOT warmup THEN step_ms END) AS steps_ms,
        quantile_cont(step_ms, 0.5) FILTER (NOT warmup) AS step_p50_ms,
        -- A profiler traces some steps, and these are what it says.
        CASE WHEN run_id IN (SELECT run_id FROM _rank_steps) THEN 0
            ELSE 1 + max(step) - min(step) - count(*)
        END AS between_steps
    FROM step_stats
    WHERE step_ms IS NOT NULL
    GROUP BY run_id
)
SELECT
    t.run_id, t.steps_ms, t.step_p50_ms,
    t.steps_ms + t.between_steps * t.step_p50_ms AS job_ms,
    r.world_size * job_ms / 3.6e6 AS gpu_hours
FROM timed AS t
JOIN runs AS r USING (run_id)
WHERE t.steps_ms IS NOT NULL
