-- Runs that are compared with each other: a run that is a copy of another under a second name is not.
-- @internal
-- @scope fleet
-- @grain run_id
SELECT run_id, config, run_date, complete, world_size
FROM runs
ANTI JOIN (
    SELECT run_id FROM sources GROUP BY run_id HAVING bool_and(duplicate_of IS NOT NULL)
) AS copies USING (run_id)
