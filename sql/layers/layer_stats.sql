-- Forward module time of a layer over the run's steps, warm-up and steps with a missing piece left out.
-- @report Layers
-- @grain run_id, layer
-- @column steps BIGINT steps | Steps counted.
-- @column mean_ms DOUBLE ms | Mean time in a step.
-- @column p50_ms DOUBLE ms | Median time in a step.
-- @column p95_ms DOUBLE ms | 95th percentile of the time in a step.
-- @column max_ms DOUBLE ms | Longest time in a step.
-- @column cv_ratio DOUBLE | Sample standard deviation over mean; NULL with one step.
-- @column worst_step INTEGER | Step of the longest time, the first of equal ones.
-- @column layer_kind VARCHAR | embedding, block (numbered), head or other, by the layer's name.
-- @column outlier_steps BIGINT steps | Counted steps that are outliers of this layer, as in layer_steps; NULL with fewer than 3.
-- @column trend VARCHAR | rising or falling: the rank correlation of time with step is beyond chance (t of Spearman's r at least 5) and the change at least 5 %; steady otherwise.
-- @column trend_ratio DOUBLE | Change over the run: least-squares slope x (last - first step) / median, outliers left out.
-- @column trend_reason VARCHAR | Why there is no trend: it needs 10 counted steps that are no outliers.
WITH moments AS (
    SELECT
        run_id,
        layer,
        min(layer_index) AS layer_index,
        min(layer_kind) AS layer_kind,
        bool_and(warmup) AS only_warmup,
        count(*) FILTER (counted) AS steps,
        count(*) FILTER (counted AND outlier) AS outlier_steps,
        sum(total_ns) FILTER (counted) AS sum_ns,
        -- Up to 10,000 s, so that n times the sum fits.
        count(*) FILTER (counted AND total_ns BETWEEN 0 AND 1e13::BIGINT) AS squared_steps,
        sum(total_ns::HUGEINT * total_ns) FILTER (counted AND total_ns BETWEEN 0 AND 1e13::BIGINT)
            AS sum_of_squares,
        quantile_cont(total_ms, 0.5) FILTER (counted) AS p50_ms,
        quantile_cont(total_ms, 0.95) FILTER (counted) AS p95_ms,
        max(total_ms) FILTER (counted) AS max_ms,
        arg_min(step, (-total_ms, step)) FILTER (counted) AS worst_step
    FROM layer_steps
    GROUP BY run_id, layer
),
judged AS (
    SELECT
        m.*,
        t.trend,
        t.trend_ratio,
        CASE
            WHEN m.steps = 0 AND m.only_warmup THEN 'warmup_only'
            WHEN m.steps = 0 THEN 'stages_missing'
            WHEN m.p50_ms = 0 THEN 'below_clock_resolution'
            WHEN t.steps IS NULL OR t.steps < 10 THEN 'few_steps'
        END AS trend_reason
    FROM moments AS m
    LEFT JOIN _layer_trends AS t ON t.run_id = m.run_id AND t.layer = m.layer
)
SELECT
    run_id,
    layer,
    layer_index,
    steps,
    ns_to_ms(sum_ns / steps) AS mean_ms,
    p50_ms,
    p95_ms,
    max_ms,
    -- n sum(x^2) - sum(x)^2 = n (n - 1) variance, exact in integers.
    CASE WHEN steps > 1 AND squared_steps = steps THEN
        ratio(sqrt((steps * sum_of_squares - sum_ns * sum_ns) / (steps * (steps - 1))), sum_ns / steps)
    END AS cv_ratio,
    worst_step,
    layer_kind,
    CASE WHEN steps >= 3 THEN outlier_steps END AS outlier_steps,
    CASE WHEN trend_reason IS NULL THEN trend END AS trend,
    CASE WHEN trend_reason IS NULL THEN trend_ratio END AS trend_ratio,
    CASE
        WHEN steps = 0 THEN trend_reason
        WHEN steps = 1 THEN 'few_steps'
        WHEN squared_steps < steps THEN 'out_of_range'
    END AS reason,
    trend_reason
FROM judged
