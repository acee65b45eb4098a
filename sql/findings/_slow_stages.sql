-- Stages that became slow: beyond what their own baseline allows, while the other stages of the run did not.
-- The bound is that of run_history: over the median by 10 % and by three times the spread, and 1 ms.
-- @internal
-- @scope fleet
-- @grain run_id, stage
-- @column micro_batch_ms DOUBLE ms | Time per micro-batch of the stage.
-- @column baseline_ms DOUBLE ms | Its median over the runs of the baseline.
-- @column change_ratio DOUBLE | micro_batch_ms over baseline_ms, less 1.
-- @column others_change_ratio DOUBLE | Median of the same over the other stages.
WITH loads AS (
    SELECT run_id, stage, micro_batch_ms
    FROM stage_balance
    WHERE micro_batch_ms IS NOT NULL
),
baselines AS (
    SELECT
        b.run_id, l.stage,
        quantile_cont(l.micro_batch_ms, 0.5) AS baseline_ms,
        greatest(
            1,
            0.1 * quantile_cont(l.micro_batch_ms, 0.5),
            3 * robust_scale(mad(l.micro_batch_ms), quantile_cont(l.micro_batch_ms, 0.5))
        ) AS margin_ms
    FROM _baseline_runs AS b
    JOIN loads AS l ON l.run_id = b.earlier_run_id
    GROUP BY b.run_id, l.stage
    HAVING count(*) >= 3
),
compared AS (
    SELECT
        l.run_id, l.stage, l.micro_batch_ms, b.baseline_ms,
        ratio(l.micro_batch_ms, b.baseline_ms) - 1 AS change_ratio,
        l.micro_batch_ms - b.baseline_ms > b.margin_ms AS slow
    FROM loads AS l
    JOIN baselines AS b USING (run_id, stage)
),
beside AS (
    SELECT
        *,
        list_sort(list(change_ratio) OVER whole_run) AS changes,
        list_position(changes, change_ratio) AS place
    FROM compared
    WINDOW whole_run AS (PARTITION BY run_id)
)
SELECT
    run_id, stage, micro_batch_ms, baseline_ms, change_ratio,
    list_median(list_concat(changes[:place - 1], changes[place + 1:])) AS others_change_ratio
FROM beside
WHERE slow AND len(changes) > 1 AND others_change_ratio < 0.5 * change_ratio
