-- Runs that lose 5 % or more of their time in a few steps far above the others: how many, how much, how regular.
-- Leading slow steps are warm-up, and steps with more work take longer.
-- @internal
-- @grain run_id
-- @column slow_steps BIGINT steps | Outliers above the median, after the first step that is none.
-- @column steps BIGINT steps | Steps with a time, warm-up left out.
-- @column median_ms DOUBLE ms | Their median.
-- @column excess_ms DOUBLE ms | What slow steps take above the median, in the mean.
-- @column lost_ratio DOUBLE | Their time above the median, over the time of all steps.
-- @column every_steps INTEGER steps | How far apart slow steps begin, where that is nearly always the same.
-- @column longest_step INTEGER | The slowest of them.
-- @column longest_ms DOUBLE ms | Its time.
WITH steady AS (
    SELECT
        run_id, step, step_ms, outlier,
        quantile_cont(step_ms, 0.5) OVER (PARTITION BY run_id) AS median_ms,
        -- The first step that is no outlier ends the warm-up.
        min(step) FILTER (NOT outlier) OVER (PARTITION BY run_id) AS first_step
    FROM step_stats
    WHERE NOT warmup AND step_ms IS NOT NULL
),
judged AS (
    SELECT
        *,
        coalesce(outlier AND step_ms > median_ms AND step > first_step, false) AS slow,
        CASE WHEN slow THEN step_ms - median_ms END AS over_ms,
        lag(slow, 1, false) OVER (PARTITION BY run_id ORDER BY step) AS slow_before
    FROM steady
),
gaps AS (
    SELECT run_id, step - lag(step) OVER (PARTITION BY run_id ORDER BY step) AS gap
    FROM judged
    WHERE slow AND NOT slow_before
),
rhythms AS (
    SELECT run_id, any_value(usual) AS every_steps
    FROM (
        SELECT run_id, gap, quantile_disc(gap, 0.5) OVER (PARTITION BY run_id) AS usual
        FROM gaps
    )
    GROUP BY run_id
    HAVING count(*) FILTER (gap = usual) >= greatest(2, 0.8 * count(gap))
)
SELECT
    j.run_id,
    count(*) FILTER (j.slow) AS slow_steps,
    count(*) AS steps,
    any_value(j.median_ms) AS median_ms,
    ordered_mean(j.over_ms) AS excess_ms,
    ratio(ordered_sum(j.over_ms), ordered_sum(j.step_ms)) AS lost_ratio,
    any_value(h.every_steps) AS every_steps,
    arg_min(j.step, (-j.step_ms, j.step)) FILTER (j.slow) AS longest_step,
    max(j.step_ms) FILTER (j.slow) AS longest_ms
FROM judged AS j
LEFT JOIN rhythms AS h USING (run_id)
ANTI JOIN _uneven_runs AS u ON u.run_id = j.run_id
GROUP BY j.run_id
HAVING count(*) FILTER (j.slow) >= 3 AND lost_ratio >= 0.05
