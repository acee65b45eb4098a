-- Figures that no row of a run has, and the reason that most of its rows give.
-- @internal
-- @grain run_id, figure
-- @column figure VARCHAR | Model and column.
WITH figures AS (
    SELECT run_id, 'step_stats.step_ms' AS figure, step_ms IS NULL AS missing, reason
    FROM step_stats
    UNION ALL
    SELECT run_id, 'step_stats.busiest_stage', busiest_stage IS NULL, stages_reason
    FROM step_stats
    UNION ALL
    SELECT run_id, 'rank_bubbles.bubble_ratio', bubble_ratio IS NULL, reason
    FROM rank_bubbles
    UNION ALL
    SELECT run_id, concat('stage_bubbles.bubble_ratio, ', basis), bubble_ratio IS NULL, reason
    FROM stage_bubbles
    WHERE basis <> 'measured'
    UNION ALL
    SELECT run_id, 'collective_bandwidth.busbw_p50_gbps', busbw_p50_gbps IS NULL, reason
    FROM collective_bandwidth
    UNION ALL
    SELECT run_id, 'straggler_ranks.slowdown', slowdown IS NULL, reason
    FROM straggler_ranks
    UNION ALL
    SELECT run_id, 'layer_stats.mean_ms', mean_ms IS NULL, reason
    FROM layer_stats
    UNION ALL
    SELECT run_id, 'workload_comm.needed_gbps', needed_gbps IS NULL, reason
    FROM workload_comm
),
counted AS (
    SELECT run_id, figure, reason, count(*) AS times, bool_and(missing) AS missing
    FROM figures
    GROUP BY run_id, figure, reason
)
SELECT run_id, figure, arg_min(reason, (-times, reason)) AS reason
FROM counted
GROUP BY run_id, figure
HAVING bool_and(missing)
