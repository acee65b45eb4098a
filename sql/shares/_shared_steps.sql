-- Steps of a run whose time is divided among operations: its steady ones, of over 16 every n-th.
-- A step whose window or time abstains is none of them.
-- @grain run_id, step
-- @column from_ns BIGINT ns | Earliest start of an operation over ranks, on the reference clock.
-- @column to_ns BIGINT ns | Latest end.
-- @column open_ns BIGINT ns | How far off two ends of operations can be that were at one time: a tick, and what the clocks leave open.
WITH steady AS (
    SELECT
        s.run_id,
        s.step,
        coalesce(w.uncertainty_ns, 0) + coalesce(r.clock_tick_ns, 0) AS open_ns,
        row_number() OVER (PARTITION BY s.run_id ORDER BY s.step) - 1 AS place,
        count(*) OVER (PARTITION BY s.run_id) AS steps
    FROM step_stats AS s
    JOIN _step_windows AS w USING (run_id, step)
    JOIN runs AS r USING (run_id)
    WHERE NOT s.warmup AND s.step_ms IS NOT NULL AND w.reason IS NULL
)
SELECT
    s.run_id,
    s.step,
    min(r.first_ns) AS from_ns,
    max(r.last_ns) AS to_ns,
    any_value(s.open_ns)::BIGINT AS open_ns
FROM steady AS s
JOIN _rank_steps AS r USING (run_id, step)
WHERE 16 * s.place % s.steps < 16
GROUP BY s.run_id, s.step
