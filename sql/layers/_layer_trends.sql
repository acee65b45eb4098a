-- Whether a layer's time rises or falls over the run, by counted steps that are no outliers.
-- The trend is significant where t = r sqrt((n - 2) / (1 - r^2)) of Spearman's rank correlation r
-- between step and time is at least 5: by chance under 2 times in 1,000 with 10 steps, less with
-- more. Sums are of integers, so that no order of rows shows in them.
-- @grain run_id, layer
-- @column steps BIGINT steps | Steps the trend rests on.
-- @column trend_ratio DOUBLE | Least-squares slope over steps, times last minus first step, over the layer's median.
-- @column trend VARCHAR | rising or falling: significant, and a change of at least 5 % the same way; else steady.
WITH ranked AS (
    SELECT
        run_id,
        layer,
        step,
        total_ns,
        -- Twice the mean rank of equal times.
        2 * rank() OVER (PARTITION BY run_id, layer ORDER BY total_ns)
            + count(*) OVER (PARTITION BY run_id, layer, total_ns) - 1 AS time_rank,
        2 * rank() OVER (PARTITION BY run_id, layer ORDER BY step) AS step_rank
    FROM layer_steps
    WHERE counted AND NOT outlier
),
sums AS (
    SELECT
        run_id,
        layer,
        count(*) AS n,
        max(step) - min(step) AS span,
        quantile_cont(total_ns, 0.5) AS median_ns,
        n * sum(step::HUGEINT * step) - sum(step) * sum(step) AS steps_square,
        n * sum(step::HUGEINT * total_ns) - sum(step) * sum(total_ns) AS product,
        n * sum(step_rank::HUGEINT * step_rank) - sum(step_rank) * sum(step_rank) AS step_ranks,
        n * sum(time_rank::HUGEINT * time_rank) - sum(time_rank) * sum(time_rank) AS time_ranks,
        n * sum(step_rank::HUGEINT * time_rank) - sum(step_rank) * sum(time_rank) AS ranks_product
    FROM ranked
    GROUP BY run_id, layer
),
correlated AS (
    SELECT
        *,
        ratio(ranks_product, sqrt(step_ranks::DOUBLE * time_ranks)) AS r,
        ratio(ratio(product, steps_square) * span, median_ns) AS trend_ratio
    FROM sums
)
SELECT
    run_id,
    layer,
    n AS steps,
    trend_ratio,
    CASE
        WHEN r * r * (n - 2) >= 25 * (1 - r * r) AND r * trend_ratio > 0
            AND abs(trend_ratio) >= 0.05
            THEN CASE WHEN trend_ratio > 0 THEN 'rising' ELSE 'falling' END
        ELSE 'steady'
    END AS trend
FROM correlated
