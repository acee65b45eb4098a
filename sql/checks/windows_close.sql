-- The parts of a rank's pipeline window add up to it, to the nanosecond.
-- @severity error
SELECT run_id, step, rank, window_ns, compute_ns, data_ns, in_op_comm_ns, p2p_recv_ns,
    p2p_send_ns, finalize_ns, other_step_ns, gap_ns
FROM rank_bubbles
WHERE window_ns <> compute_ns + data_ns + in_op_comm_ns + p2p_recv_ns + p2p_send_ns
        + finalize_ns + other_step_ns + gap_ns
    OR least(compute_ns, data_ns, in_op_comm_ns, p2p_recv_ns, p2p_send_ns, finalize_ns,
        other_step_ns, gap_ns) < 0
