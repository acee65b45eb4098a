-- Receives inside a step's window: how much of them was waiting for the sender to start.
-- @grain run_id, step, rank
-- @column wait_ns BIGINT ns | From the start of a receive to that of the send that feeds it, as far as in the receive and in the window; NULL with a reason.
WITH receives AS (
    SELECT
        o.run_id, o.step, o.rank,
        m.matched,
        m.uncertainty_ns,
        clipped_ns(o.from_ns, o.to_ns, w.window_start_ns, w.window_end_ns) AS recv_ns,
        clipped_ns(o.from_ns, least(o.to_ns, m.sent_ns), w.window_start_ns, w.window_end_ns)
            AS wait_ns
    FROM _op_intervals AS o
    JOIN _step_windows AS w USING (run_id, step)
    LEFT JOIN _comm_matches AS m
        ON m.run_id = o.run_id AND m.rank = o.rank AND m.seq = o.seq AND m.sub = 0
    WHERE w.reason IS NULL AND o.part = 'p2p_recv'
)
SELECT
    run_id, step, rank,
    CASE
        WHEN NOT bool_and(coalesce(matched, false)) THEN 'peer_not_seen'
        WHEN lost_in_clocks(sum(uncertainty_ns), sum(recv_ns)) THEN 'below_clock_uncertainty'
    END AS reason,
    CASE WHEN reason IS NULL THEN try_cast(sum(wait_ns) AS BIGINT) END AS wait_ns
FROM receives
GROUP BY run_id, step, rank
