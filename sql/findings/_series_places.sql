-- Place of every run among the runs of its configuration, by date.
-- Copies and runs without a date or a configuration have no place.
-- @internal
-- @scope fleet
-- @grain run_id
-- @column place BIGINT | From 1.
SELECT
    run_id, config, run_date, world_size,
    row_number() OVER (PARTITION BY config ORDER BY run_date, run_id) AS place
FROM _fleet_runs
WHERE config IS NOT NULL AND run_date IS NOT NULL
