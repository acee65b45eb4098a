-- Do jumps of the loss and slow steps come together?
-- @topic steps
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param rise DOUBLE = 0.2 | A loss is a jump above the median of the five before it by more.
-- @param top UBIGINT = 20 | Rows at most.
-- Steps whose loss jumps, whose time is an outlier, or both. Both in one step speak for the data or
-- for a restart; a jump alone speaks for the training itself.

WITH steps AS (
    SELECT
        run_id,
        step,
        loss,
        median(loss) OVER (
            PARTITION BY run_id ORDER BY step ROWS BETWEEN 5 PRECEDING AND 1 PRECEDING
        ) AS loss_before,
        step_ms,
        coalesce(outlier, false) AS slow_step
    FROM step_stats
    WHERE contains(run_id, $run)
)
SELECT
    run_id,
    step,
    loss,
    loss_before,
    coalesce(loss > (1 + $rise) * loss_before, false) AS loss_jump,
    step_ms,
    slow_step
FROM steps
WHERE slow_step OR loss > (1 + $rise) * loss_before
ORDER BY loss / loss_before DESC NULLS LAST, run_id, step
LIMIT $top
