-- How much of the communication is hidden behind compute?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- Of the communication inside operations, `overlapped` runs beside a kernel and the rest is
-- exposed; `exposed_ratio` is what that takes of the window. `wait_ratio` is the part of it that
-- waits for a peer, where a faster link does not help. NULL where not every peer was seen.

SELECT
    b.run_id,
    sum(b.in_op_comm_ms) / count(*) AS comm_ms,
    sum(b.in_op_overlap_ms) / nullif(sum(b.in_op_comm_ms), 0) AS overlapped_ratio,
    sum(b.in_op_comm_ms - b.in_op_overlap_ms) / sum(b.window_ms) AS exposed_ratio,
    CASE
        WHEN count(b.in_op_wait_ms) = count(*) THEN sum(b.in_op_wait_ms) / sum(b.window_ms)
    END AS wait_ratio,
    CASE
        WHEN count(b.p2p_recv_transfer_ms) = count(*)
            THEN sum(b.p2p_send_ms + b.p2p_recv_transfer_ms) / sum(b.window_ms)
    END AS messages_ratio
FROM rank_bubbles AS b
JOIN step_stats AS s USING (run_id, step)
WHERE b.window_ms > 0 AND NOT s.warmup AND contains(b.run_id, $run)
GROUP BY b.run_id
ORDER BY exposed_ratio DESC NULLS LAST, b.run_id
