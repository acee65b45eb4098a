-- What the progress records of a log say about each step.
-- Record I is printed for the batch of index I, which is step I + 1 of its epoch; a record over
-- several batches gives none of them a time.
-- @internal
-- @grain run_id, step
-- @column step_ns DOUBLE ns | Median over copies of the record's time.
-- @column loss DOUBLE | Median over copies of the record's loss.
WITH records AS (
    SELECT
        run_id,
        (coalesce(epoch, 1)::BIGINT - 1) * coalesce(steps_per_epoch, 0) + step + 1 AS last_step,
        coalesce(batches_covered, 1) AS batches,
        step_time_ns,
        loss
    FROM train_steps
    WHERE step IS NOT NULL
),
covered AS (
    SELECT *, unnest(range(last_step - batches + 1, last_step + 1))::INTEGER AS covered_step
    FROM records
    -- Beyond these numbers it is no record of steps.
    WHERE last_step BETWEEN 1 AND 2147483646 AND batches BETWEEN 1 AND 1000
)
SELECT
    run_id,
    covered_step AS step,
    quantile_cont(step_time_ns, 0.5) FILTER (batches = 1) AS step_ns,
    quantile_cont(loss, 0.5) FILTER (batches = 1) AS loss
FROM covered
GROUP BY run_id, covered_step
