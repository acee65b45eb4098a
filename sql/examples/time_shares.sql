-- Where did the time of each pipeline stage go?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- Parts of the stage's window, over its ranks and the steps without warm-up; they add up to 1.
-- Much `recv` is the bubble, much `comm` is communication inside operations; `wait` is the part of
-- it that waits for a peer, NULL where a peer was not seen.

SELECT
    b.run_id,
    b.stage,
    sum(b.compute_ns) / sum(b.window_ns) AS compute,
    sum(b.data_ns) / sum(b.window_ns) AS data,
    sum(b.in_op_comm_ns) / sum(b.window_ns) AS comm,
    sum(b.p2p_recv_ns) / sum(b.window_ns) AS recv,
    sum(b.p2p_send_ns) / sum(b.window_ns) AS send,
    sum(b.finalize_ns) / sum(b.window_ns) AS finalize,
    sum(b.other_step_ns) / sum(b.window_ns) AS other_step,
    sum(b.gap_ns) / sum(b.window_ns) AS gap,
    CASE
        WHEN count(b.in_op_wait_ms) = count(*) THEN 1e6 * sum(b.in_op_wait_ms) / sum(b.window_ns)
    END AS wait
FROM rank_bubbles AS b
JOIN step_stats AS s USING (run_id, step)
WHERE b.window_ns > 0 AND NOT s.warmup AND contains(b.run_id, $run)
GROUP BY b.run_id, b.stage
ORDER BY b.run_id, b.stage
