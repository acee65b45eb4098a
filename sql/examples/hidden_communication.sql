-- How much of the communication is hidden behind compute?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- Of the communication inside operations, `overlapped` runs beside a kernel and the rest is
-- exposed; `exposed_ratio` is what that takes of the window. `wait_ratio` is the part of it that
-- waits for a peer, where a faster link does not help. NULL where not every peer was seen. Of kernels of a
-- device the window is that of `device_steps`; `last_to_arrive` says who is waited for.

SELECT
    run_id,
    avg(in_op_comm_ms) AS comm_ms,
    sum(in_op_overlap_ms) / nullif(sum(in_op_comm_ms), 0) AS overlapped_ratio,
    sum(in_op_comm_ms - in_op_overlap_ms) / sum(window_ms) AS exposed_ratio,
    CASE
        WHEN count(in_op_wait_ms) = count(*) THEN sum(in_op_wait_ms) / sum(window_ms)
    END AS wait_ratio,
    CASE
        WHEN count(p2p_recv_transfer_ms) = count(*)
            THEN sum(p2p_send_ms + p2p_recv_transfer_ms) / sum(window_ms)
    END AS messages_ratio
FROM rank_summary
WHERE window_ms > 0 AND contains(run_id, $run)
GROUP BY run_id
UNION ALL
SELECT
    run_id,
    avg(comm_ms),
    1 - sum(exposed_comm_ms) / nullif(sum(comm_ms), 0),
    sum(exposed_comm_ms) / nullif(sum(window_ms), 0),
    NULL,
    NULL
FROM device_steps
SEMI JOIN (FROM step_stats WHERE NOT warmup) USING (run_id, step)
WHERE contains(run_id, $run)
GROUP BY run_id
ORDER BY exposed_ratio DESC NULLS LAST, run_id
