-- Stages that became slow: beyond what their own baseline allows, while the other stages of the run did not.
-- The bound is that of run_history: over the median by 10 % and by three times the spread, and 1 ms.
-- @scope fleet
-- @grain run_id, stage
-- @column baseline_ms DOUBLE ms | Its median over the runs of the baseline.
-- @column change_ratio DOUBLE | micro_batch_ms over baseline_ms, less 1.
-- @column allowed_ms DOUBLE ms | More than the baseline by this is slow.
-- @column others_change_ratio DOUBLE | Median of the same over the other stages.
WITH loads AS (
    SELECT
        run_id,
        stage,
        micro_batch_ms,
        quantile_cont(micro_batch_ms, 0.5) FILTER (judged) OVER baseline AS baseline_ms,
        greatest(
            1,
            0.1 * baseline_ms,
            3 * robust_scale(mad(micro_batch_ms) FILTER (judged) OVER baseline, baseline_ms)
        ) AS allowed_ms,
        ratio(micro_batch_ms, baseline_ms) - 1 AS change_ratio,
        micro_batch_ms - baseline_ms > allowed_ms AS slow
    FROM stage_balance
    JOIN _fleet_runs USING (run_id)
    WHERE micro_batch_ms IS NOT NULL AND judged_before IS NOT NULL
    WINDOW baseline AS (
        PARTITION BY config, stage
        ORDER BY judged_before
        RANGE BETWEEN baseline_runs() PRECEDING AND 1 PRECEDING
    )
    QUALIFY count(CASE WHEN judged THEN 1 END) OVER baseline >= 3
),
beside AS (
    SELECT
        *,
        list_sort(list(change_ratio) OVER whole_run) AS changes,
        list_position(changes, change_ratio) AS place
    FROM loads
    WINDOW whole_run AS (PARTITION BY run_id)
)
SELECT
    run_id, stage, micro_batch_ms, baseline_ms, change_ratio, allowed_ms,
    list_median(list_concat(changes[:place - 1], changes[place + 1:])) AS others_change_ratio
FROM beside
WHERE slow AND len(changes) > 1 AND others_change_ratio < 0.5 * change_ratio
