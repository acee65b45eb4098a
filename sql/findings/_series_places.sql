-- Place of every run among the runs of its configuration, by date; where that is not known, among those of its label.
-- Copies and runs without a date or a configuration have no place.
-- @scope fleet
-- @grain run_id
-- @column place BIGINT | From 1.
-- @column later BIGINT runs | Runs after it.
-- @column measured_later BIGINT runs | Those of them that are measured, as in _fleet_runs.
-- @column ranked_later BIGINT runs | Those of them in which a rank was compared.
-- @column latest_date TIMESTAMP | Date of the latest run of its configuration.
-- @column before_date TIMESTAMP | Date of the run before it; NULL of the first.
WITH listed AS (
    SELECT
        f.run_id,
        CASE WHEN f.config IS NULL THEN concat_ws(' label=', r.config, replace(r.label, ' ', '_')) ELSE r.config END
            AS config,
        f.run_date,
        f.world_size,
        f.measured,
        f.run_id IN (SELECT run_id FROM _subject_runs) AS ranked
    FROM _fleet_runs AS f
    JOIN runs AS r USING (run_id)
    WHERE r.config IS NOT NULL AND f.run_date IS NOT NULL
)
SELECT
    * EXCLUDE (measured, ranked),
    row_number() OVER (PARTITION BY config ORDER BY run_date, run_id) AS place,
    count(*) OVER after AS later,
    count(CASE WHEN measured THEN 1 END) OVER after AS measured_later,
    count(CASE WHEN ranked THEN 1 END) OVER after AS ranked_later,
    max(run_date) OVER (PARTITION BY config) AS latest_date,
    lag(run_date) OVER (PARTITION BY config ORDER BY run_date, run_id) AS before_date
FROM listed
WINDOW after AS (
    PARTITION BY config ORDER BY run_date, run_id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
)
