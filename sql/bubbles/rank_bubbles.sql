-- Where a rank's pipeline window went in a step; the parts add up to the window exactly.
-- The window runs from the earliest operation to the latest end of a backward_step over all ranks.
-- @report Where the pipeline window went
-- @grain run_id, step, rank
-- @column window_ms DOUBLE ms | Length of the step's pipeline window.
-- @column compute_ms DOUBLE ms | forward_step, backward_step and loss_func outside the communication inside them.
-- @column data_ms DOUBLE ms | Data loading: get_batch outside the communication inside it.
-- @column in_op_comm_ms DOUBLE ms | Communication inside those operations: union of their sub-operations.
-- @column p2p_recv_ms DOUBLE ms | Receives: waiting for the neighbour stage and the transfer. A fused send and receive counts here.
-- @column p2p_send_ms DOUBLE ms | Sends to the neighbour stage.
-- @column finalize_ms DOUBLE ms | Gradient and embedding all-reduces and optimizer, as far as they lie in the window.
-- @column other_step_ms DOUBLE ms | Operations of another step that reach into this window.
-- @column gap_ms DOUBLE ms | What no operation covers.
-- @column window_ns BIGINT ns | window_ms, exactly.
-- @column compute_ns BIGINT ns | compute_ms, exactly.
-- @column data_ns BIGINT ns | data_ms, exactly.
-- @column in_op_comm_ns BIGINT ns | in_op_comm_ms, exactly.
-- @column p2p_recv_ns BIGINT ns | p2p_recv_ms, exactly.
-- @column p2p_send_ns BIGINT ns | p2p_send_ms, exactly.
-- @column finalize_ns BIGINT ns | finalize_ms, exactly.
-- @column other_step_ns BIGINT ns | other_step_ms, exactly.
-- @column gap_ns BIGINT ns | gap_ms, exactly.
-- @column idle_ms DOUBLE ms | Window without compute_ms, data_ms and in_op_comm_ms.
-- @column p2p_recv_wait_ms DOUBLE ms | What of p2p_recv_ms is waiting for the sender to start.
-- @column p2p_recv_transfer_ms DOUBLE ms | The rest of p2p_recv_ms: the message was on its way.
-- @column in_op_wait_ms DOUBLE ms | What of in_op_comm_ms is waiting: synchronous calls, own duration over the shortest of the group, broadcast and reduce left out. NULL where a peer was not seen.
-- @column in_op_overlap_ms DOUBLE ms | What of in_op_comm_ms is asynchronous calls, whose time contains the weight-gradient kernel: no evidence of waiting.
-- @column bubble_ratio DOUBLE | Idle over window.
-- @column bubble_with_wait_ratio DOUBLE | Idle and in_op_wait_ms over window: a rank that waits for its tensor-parallel twin is idle too.
-- @column bubble_over_ideal_ratio DOUBLE | Idle over busy, busy being compute_ms, data_ms and in_op_comm_ms.
-- @column theory_bubble_ratio DOUBLE | What the schedule idles with equal stages, over the window: (p - 1) / (v m + p - 1).
-- @column theory_over_ideal_ratio DOUBLE | The same over the busy time: (p - 1) / (v m), Narayanan et al. 2021, section 2.2.
-- @column recv_reason VARCHAR | Why receives are not split into waiting and transfer.
-- @column window_uncertainty_ms DOUBLE ms | How far off window_ms can be, for the clocks that it was read from; 0 on one clock.
-- @column overlap_ns BIGINT ns | Time of this rank and step that two operations claim, a fault of the trace: counted once, for the one that started first.
WITH parts AS (
    SELECT
        s.run_id, s.step, s.rank, s.stage, s.overlap_ns,
        w.window_end_ns - w.window_start_ns AS window_ns,
        p.compute_ns, p.data_ns, p.in_op_comm_ns, p.p2p_recv_ns, p.p2p_send_ns, p.finalize_ns,
        p.in_op_overlap_ns,
        p.compute_ns + p.data_ns + p.in_op_comm_ns AS busy_ns,
        busy_ns + p.p2p_recv_ns + p.p2p_send_ns + p.finalize_ns AS own_ns,
        c.covered_ns
    FROM _rank_steps AS s
    JOIN _step_windows AS w USING (run_id, step)
    JOIN _window_parts AS p USING (run_id, step, rank)
    JOIN _window_cover AS c USING (run_id, step, rank)
    WHERE s.finished
),
sums AS (
    SELECT
        p.*,
        p.covered_ns - p.own_ns AS other_step_ns,
        p.window_ns - p.covered_ns AS gap_ns,
        p.window_ns - p.busy_ns AS idle_ns,
        CASE
            WHEN w.rank IS NULL THEN 0
            WHEN w.wait_ns IS NOT NULL THEN least(w.wait_ns, p.in_op_comm_ns)
        END AS wait_ns,
        CASE WHEN r.rank IS NULL THEN 0 ELSE r.wait_ns END AS recv_wait_ns,
        r.reason AS recv_reason
    FROM parts AS p
    LEFT JOIN _recv_waits AS r USING (run_id, step, rank)
    LEFT JOIN _in_op_wait AS w USING (run_id, step, rank)
)
SELECT
    s.run_id,
    s.step,
    s.rank,
    s.stage,
    ns_to_ms(COLUMNS('^(window|compute|data|in_op_comm|p2p_recv|p2p_send|finalize|other_step|gap)_ns$')) AS '\1_ms',
    COLUMNS('^(window|compute|data|in_op_comm|p2p_recv|p2p_send|finalize|other_step|gap)_ns$'),
    ns_to_ms(p.idle_ns) AS idle_ms,
    ns_to_ms(p.recv_wait_ns) AS p2p_recv_wait_ms,
    ns_to_ms(p.p2p_recv_ns - p.recv_wait_ns) AS p2p_recv_transfer_ms,
    ns_to_ms(p.wait_ns) AS in_op_wait_ms,
    ns_to_ms(p.in_op_overlap_ns) AS in_op_overlap_ms,
    p.idle_ns / p.window_ns AS bubble_ratio,
    (p.idle_ns + p.wait_ns) / p.window_ns AS bubble_with_wait_ratio,
    ratio(p.idle_ns, p.busy_ns) AS bubble_over_ideal_ratio,
    t.theory_bubble_ratio,
    t.theory_over_ideal_ratio,
    p.recv_reason,
    CASE WHEN w.reason IS NULL THEN ns_to_ms(w.uncertainty_ns) END AS window_uncertainty_ms,
    s.overlap_ns,
    CASE
        WHEN w.reason IS NOT NULL THEN w.reason
        WHEN NOT s.finished THEN 'step_unfinished'
        WHEN p.busy_ns = 0 THEN 'below_clock_resolution'
        WHEN p.wait_ns IS NULL THEN 'peer_not_seen'
        WHEN t.micro_batches IS NULL THEN 'micro_batches_unknown'
    END AS reason
FROM _rank_steps AS s
JOIN _step_windows AS w USING (run_id, step)
JOIN _pipelines AS t USING (run_id)
LEFT JOIN sums AS p USING (run_id, step, rank)
