-- The runs that make up the baseline of a run: the 20 latest complete ones of its configuration before it.
-- Runs of one date follow each other by run_id; undated runs and copies have no baseline and are in none.
-- @internal
-- @scope fleet
-- @grain run_id, earlier_run_id
-- @column earlier_run_id VARCHAR | A run of the baseline.
WITH numbered AS (
    SELECT
        run_id,
        config,
        complete,
        count(*) FILTER (complete) OVER (
            PARTITION BY config
            ORDER BY run_date, run_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS complete_before
    FROM _fleet_runs
    WHERE run_date IS NOT NULL
),
places AS (
    SELECT
        run_id,
        config,
        unnest(range(greatest(0, complete_before - 20), complete_before)) AS place
    FROM numbered
)
SELECT p.run_id, e.run_id AS earlier_run_id
FROM places AS p
JOIN numbered AS e
    ON e.config = p.config AND e.complete_before = p.place AND e.complete
