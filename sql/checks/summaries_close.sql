-- The mean parts of a stage's and of a rank's window add up to it, to the nanosecond.
-- @severity error
WITH summaries AS (
    SELECT run_id, stage, NULL AS rank, window_ms, compute_ms, data_ms, in_op_comm_ms, p2p_recv_ms,
        p2p_send_ms, finalize_ms, other_step_ms, gap_ms
    FROM stage_summary
    UNION ALL
    SELECT run_id, stage, rank, window_ms, compute_ms, data_ms, in_op_comm_ms, p2p_recv_ms,
        p2p_send_ms, finalize_ms, other_step_ms, gap_ms
    FROM rank_summary
)
FROM summaries
WHERE abs(compute_ms + data_ms + in_op_comm_ms + p2p_recv_ms + p2p_send_ms + finalize_ms
    + other_step_ms + gap_ms - window_ms) > 1e-6
