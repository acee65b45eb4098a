-- Where did the time of each pipeline stage go?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- Parts of the stage's window, over its ranks and the steps without warm-up; they add up to 1.
-- Much `recv` is the bubble, `data` is loading, much `comm` is communication inside operations;
-- `wait` is the part of it that waits for a peer, NULL where a peer was not seen.

SELECT
    run_id,
    stage,
    compute_ms / window_ms AS compute,
    data_ms / window_ms AS data,
    in_op_comm_ms / window_ms AS comm,
    p2p_recv_ms / window_ms AS recv,
    p2p_send_ms / window_ms AS send,
    finalize_ms / window_ms AS finalize,
    other_step_ms / window_ms AS other_step,
    gap_ms / window_ms AS gap,
    in_op_wait_ms / window_ms AS wait
FROM stage_summary
WHERE window_ms > 0 AND contains(run_id, $run)
ORDER BY run_id, stage
