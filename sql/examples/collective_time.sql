-- Which communication takes the most time?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Time of a rank in a step, mean over ranks and steps without warm-up, and its part of all
-- communication. It holds waiting: a `recv` is mostly the bubble. Overlapped calls hold the kernel
-- that runs beside them.

WITH timed AS (
    -- Decimals add up alike in every order of the rows.
    SELECT c.* REPLACE (c.duration_ms::DECIMAL(18, 6) AS duration_ms)
    FROM collective_calls AS c
    JOIN runs AS r USING (run_id)
    JOIN step_stats AS s USING (run_id, step)
    WHERE
        NOT coalesce(r.simulated, false)
        AND NOT s.warmup
        AND c.duration_ms IS NOT NULL
        AND contains(c.run_id, $run)
),
measured AS (
    SELECT run_id, count(DISTINCT (rank, step)) AS rank_steps, sum(duration_ms) AS total_ms
    FROM timed
    GROUP BY run_id
)
SELECT
    t.run_id,
    t.collective,
    t.group_kind,
    t.overlapped,
    count(*) / any_value(m.rank_steps) AS calls_per_step,
    sum(t.duration_ms) / any_value(m.rank_steps) AS ms_per_step,
    sum(t.duration_ms) / nullif(any_value(m.total_ms), 0) AS share_ratio,
    median(t.busbw_gbps) AS busbw_p50_gbps
FROM timed AS t
JOIN measured AS m USING (run_id)
GROUP BY t.run_id, t.collective, t.group_kind, t.overlapped
ORDER BY ms_per_step DESC, t.run_id, t.collective, t.group_kind, t.overlapped
LIMIT $top
