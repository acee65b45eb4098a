-- Bubble of a stage as its ranks' traces measure it.
-- @internal
-- @grain run_id, step, stage
-- @column ranks BIGINT ranks | Ranks of the stage with a bubble.
-- @column bubble_ratio DOUBLE | Mean over the ranks.
-- @column bubble_min_ratio DOUBLE | Smallest of a rank.
-- @column bubble_max_ratio DOUBLE | Largest of a rank.
-- @column bubble_over_ideal_ratio DOUBLE | Mean over the ranks.
SELECT
    run_id,
    step,
    stage,
    count(bubble_ratio) AS ranks,
    ordered_mean(bubble_ratio) AS bubble_ratio,
    min(bubble_ratio) AS bubble_min_ratio,
    max(bubble_ratio) AS bubble_max_ratio,
    ordered_mean(bubble_over_ideal_ratio) AS bubble_over_ideal_ratio,
    CASE WHEN count(bubble_ratio) = 0 THEN min(reason) END AS reason
FROM rank_bubbles
WHERE stage IS NOT NULL
GROUP BY run_id, step, stage
