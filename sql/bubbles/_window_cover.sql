-- How much of a step's window any operation of the rank covers, of whatever step.
-- Read off the running total of the rank's intervals at both ends of the window, so that the cost
-- does not depend on how many windows an operation reaches into.
-- @grain run_id, step, rank
-- @column covered_ns BIGINT ns | Time of the window inside operations.
WITH totals AS (
    SELECT
        run_id,
        rank,
        from_ns,
        to_ns,
        coalesce(sum(to_ns - from_ns) OVER (
            PARTITION BY run_id, rank ORDER BY from_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before_ns
    FROM _op_intervals
    WHERE from_ns < to_ns
),
windows AS (
    SELECT s.run_id, s.step, s.rank, w.window_start_ns, w.window_end_ns
    FROM _rank_steps AS s
    JOIN _step_windows AS w USING (run_id, step)
    WHERE w.reason IS NULL
)
SELECT
    w.run_id,
    w.step,
    w.rank,
    (
        coalesce(l.before_ns + least(w.window_end_ns, l.to_ns) - l.from_ns, 0)
        - coalesce(f.before_ns + least(w.window_start_ns, f.to_ns) - f.from_ns, 0)
    )::BIGINT AS covered_ns
FROM windows AS w
ASOF LEFT JOIN totals AS f
    ON f.run_id = w.run_id AND f.rank = w.rank AND f.from_ns <= w.window_start_ns
ASOF LEFT JOIN totals AS l
    ON l.run_id = w.run_id AND l.rank = w.rank AND l.from_ns <= w.window_end_ns
