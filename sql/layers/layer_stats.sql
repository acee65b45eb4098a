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
WITH counted AS (
    SELECT *, NOT warmup AND deviation_ratio IS NOT NULL AS counts
    FROM layer_steps
),
moments AS (
    SELECT
        run_id,
        layer,
        min(layer_index) AS layer_index,
        count(*) FILTER (counts) AS steps,
        sum(total_ns) FILTER (counts) AS sum_ns,
        sum(total_ns::HUGEINT * total_ns) FILTER (counts) AS sum_of_squares,
        quantile_cont(total_ms, 0.5) FILTER (counts) AS p50_ms,
        quantile_cont(total_ms, 0.95) FILTER (counts) AS p95_ms,
        max(total_ms) FILTER (counts) AS max_ms,
        arg_min(step, (-total_ms, step)) FILTER (counts) AS worst_step
    FROM counted
    GROUP BY run_id, layer
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
    CASE WHEN steps > 1 THEN
        ratio(sqrt((steps * sum_of_squares - sum_ns * sum_ns) / (steps * (steps - 1))), sum_ns / steps)
    END AS cv_ratio,
    worst_step,
    CASE steps
        WHEN 0 THEN 'warmup_only'
        WHEN 1 THEN 'few_steps'
    END AS reason
FROM moments
