-- Place of every run among the runs of its configuration, by date.
-- Copies and runs without a date or a configuration have no place.
-- @internal
-- @scope fleet
-- @grain run_id
-- @column place BIGINT | From 1.
SELECT
    f.run_id, r.config, f.run_date, f.world_size,
    row_number() OVER (PARTITION BY r.config ORDER BY f.run_date, f.run_id) AS place
FROM _fleet_runs AS f
JOIN runs AS r USING (run_id)
WHERE r.config IS NOT NULL AND f.run_date IS NOT NULL
