-- Runs whose steps became slower at one step and stayed so to the end: which step, and by how much.
-- The ranks of the step times change (Pettitt 1979, p below 0.001), which tells two levels; the step divides best
-- what is below the middle of these from what is above. It must be a jump: the 5 steps after it, and the last 5,
-- exceed the 5 before it as their medians do, and 9 in 10 steps on either side are on their side of half the bound.
-- Either side has 10 records or more; 3 are enough where a rank became slow at that step.
-- @grain run_id
-- @column since_step INTEGER | First slow step.
-- @column slow_steps BIGINT steps | Steps from there on.
-- @column steps BIGINT steps | Steps with a time, warm-up left out.
-- @column before_ms DOUBLE ms | Median of the steps before.
-- @column after_ms DOUBLE ms | Median from there on.
-- @column bound_ms DOUBLE ms | What the median may exceed that before, as in run_history.
-- @column since TIMESTAMP | When the first record with it was printed; NULL where the input does not say.
WITH steady AS (
    SELECT
        s.run_id, s.step, s.step_ms, coalesce(l.record, s.step) AS record,
        count(*) OVER (PARTITION BY s.run_id) AS steps,
        row_number() OVER (PARTITION BY s.run_id ORDER BY s.step) AS place,
        -- Ties have the mean of their ranks.
        rank() OVER (PARTITION BY s.run_id ORDER BY s.step_ms)
            + (count(*) OVER (PARTITION BY s.run_id, s.step_ms) - 1) / 2.0 AS time_rank
    FROM step_stats AS s
    LEFT JOIN _log_records AS l USING (run_id, step)
    WHERE NOT s.warmup AND s.step_ms IS NOT NULL
),
changed AS (
    SELECT
        run_id,
        any_value(steps) AS steps,
        arg_min(place, (u, place)) AS about,
        -2 * min(u) AS k
    FROM (
        SELECT
            *,
            sum(time_rank - (steps + 1) / 2.0) OVER (PARTITION BY run_id ORDER BY place) AS u
        FROM steady
    )
    GROUP BY run_id
),
levels AS (
    SELECT
        c.run_id,
        (median(step_ms) FILTER (place <= about) + median(step_ms) FILTER (place > about)) / 2 AS middle_ms
    FROM changed AS c
    JOIN steady AS s USING (run_id)
    WHERE 2 * exp(-6.0 * c.k ** 2 / (c.steps ** 3.0 + c.steps ** 2.0)) < 0.001
    GROUP BY c.run_id
),
cut AS (
    SELECT run_id, any_value(steps) AS steps, arg_min(place, (above, place)) AS last_fast, 10 AS least_seen
    FROM (
        SELECT
            s.run_id, s.steps, s.place,
            sum(sign(s.step_ms - l.middle_ms)) OVER (PARTITION BY s.run_id ORDER BY s.place) AS above
        FROM steady AS s
        JOIN levels AS l USING (run_id)
    )
    GROUP BY run_id
    UNION ALL
    SELECT s.run_id, any_value(s.steps), max(s.place), 3
    FROM _late_ranks AS k
    JOIN steady AS s ON s.run_id = k.run_id AND s.step < k.since_step
    GROUP BY s.run_id
),
parts AS (
    SELECT
        c.run_id, c.least_seen,
        any_value(c.steps) AS steps,
        min(s.step) FILTER (place > last_fast) AS since_step,
        count(*) FILTER (place > last_fast) AS slow_steps,
        median(step_ms) FILTER (place <= last_fast) AS before_ms,
        noise_bound(before_ms, mad(step_ms) FILTER (place <= last_fast), before_ms, 0) AS bound_ms,
        median(step_ms) FILTER (place > last_fast) AS after_ms,
        median(step_ms) FILTER (place BETWEEN last_fast - 4 AND last_fast) AS left_ms,
        median(step_ms) FILTER (place BETWEEN last_fast + 1 AND last_fast + 5) AS right_ms,
        median(step_ms) FILTER (place > c.steps - 5) AS last_ms,
        quantile_cont(step_ms, 0.9) FILTER (place <= last_fast) AS before_most_ms,
        quantile_cont(step_ms, 0.1) FILTER (place > last_fast) AS after_least_ms,
        -- A mean over several steps is one observation.
        count(DISTINCT record) FILTER (place <= last_fast) AS before_seen,
        count(DISTINCT record) FILTER (place > last_fast) AS after_seen
    FROM cut AS c
    JOIN steady AS s USING (run_id)
    GROUP BY c.run_id, c.least_seen
),
records AS (
    -- Of a step that was trained once more, the later record has the time.
    SELECT run_id, step, max(logged_at) AS logged_at
    FROM train_steps
    GROUP BY run_id, step
)
SELECT
    p.run_id, p.since_step, p.slow_steps, p.steps, p.before_ms, p.after_ms, p.bound_ms,
    r.logged_at AS since
FROM parts AS p
-- More work in a step takes longer.
ANTI JOIN _uneven_runs USING (run_id)
-- A rank that became slow then says more.
ANTI JOIN straggler_ranks AS k
    ON k.run_id = p.run_id AND abs(k.since_step - p.since_step) <= 1 AND k.verdict IN ('straggler', 'suspect')
ASOF LEFT JOIN records AS r ON r.run_id = p.run_id AND r.step >= p.since_step
WHERE least(p.before_seen, p.after_seen) >= p.least_seen
    AND least(p.after_ms - p.before_ms, p.right_ms - p.left_ms, p.last_ms - p.left_ms) > p.bound_ms
    AND p.before_most_ms < p.before_ms + p.bound_ms / 2
    AND p.after_least_ms > p.before_ms + p.bound_ms / 2
QUALIFY row_number() OVER (PARTITION BY p.run_id ORDER BY p.least_seen DESC) = 1
