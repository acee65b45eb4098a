-- What the progress records of a log say about each step.
-- Record I is printed for the batch of index I, which is step I + 1 of its epoch; a record over
-- several batches gives none of them a time. Records that say what their time is are of the steps
-- themselves, and a mean is the time of each step it covers.
-- @internal
-- @grain run_id, step
-- @column step_ns DOUBLE ns | Median over copies of the record's time.
-- @column loss DOUBLE | Median over copies of the record's loss.
-- @column untimed_reason VARCHAR | Why the step has no time, if it has none.
WITH records AS (
    SELECT
        run_id,
        CASE WHEN time_basis IS NULL
            THEN (coalesce(epoch, 1)::BIGINT - 1) * coalesce(steps_per_epoch, 0) + step + 1
            ELSE step
        END AS last_step,
        coalesce(batches_covered, 1) AS batches,
        step_time_ns,
        loss,
        time_basis
    FROM train_steps
    WHERE step IS NOT NULL
),
covered AS (
    SELECT *, unnest(range(last_step - batches + 1, last_step + 1))::INTEGER AS covered_step
    FROM records
    -- Beyond these numbers it is no record of steps.
    WHERE last_step BETWEEN CASE WHEN time_basis = 'own' THEN 0 ELSE 1 END AND 2147483646
        AND batches BETWEEN 1 AND 1000
)
SELECT
    run_id,
    covered_step AS step,
    quantile_cont(step_time_ns, 0.5) FILTER (
        coalesce(time_basis <> 'includes_first', batches = 1)
    ) AS step_ns,
    quantile_cont(loss, 0.5) FILTER ((time_basis IS NOT NULL OR batches = 1) AND isfinite(loss))
        AS loss,
    CASE
        WHEN bool_and(coalesce(time_basis = 'includes_first', false)) THEN 'includes_first_step'
        WHEN bool_and(time_basis IS NOT NULL) THEN 'no_step_time'
        ELSE 'several_steps'
    END AS untimed_reason
FROM covered
GROUP BY run_id, covered_step
