-- Steps in which equal numbers mean different steps of the job.
-- @grain run_id, step
SELECT run_id, step FROM _step_shifts
UNION
SELECT run_id, unnest(range(first_beside, last_beside + 1))::INTEGER AS step FROM _step_shifts
