-- What a rank does in a step: means over the run's steady steps, the window's parts first.
-- A mean of a part is its sum over the steps with a window over their number, so that parts add up
-- to the window. Whether the rank is slow is in straggler_ranks.
-- @grain run_id, rank
-- @column steps BIGINT steps | Steady steps with a window.
-- @column window_ms DOUBLE ms | Pipeline window, see rank_bubbles.
-- @column compute_ms DOUBLE ms | forward_step, backward_step and loss_func outside the communication inside them.
-- @column data_ms DOUBLE ms | Data loading outside the communication inside it.
-- @column in_op_comm_ms DOUBLE ms | Communication inside those operations.
-- @column p2p_recv_ms DOUBLE ms | Receives.
-- @column p2p_send_ms DOUBLE ms | Sends.
-- @column finalize_ms DOUBLE ms | Gradient and embedding all-reduces and optimizer, as far as they lie in the window.
-- @column other_step_ms DOUBLE ms | Operations of another step that reach into the window.
-- @column gap_ms DOUBLE ms | What no operation covers.
-- @column idle_ms DOUBLE ms | Window without compute_ms, data_ms and in_op_comm_ms.
-- @column p2p_recv_wait_ms DOUBLE ms | What of receives is waiting for the sender to start, over the steps where that is known.
-- @column p2p_recv_transfer_ms DOUBLE ms | The rest of them, over the same steps.
-- @column in_op_wait_ms DOUBLE ms | What of in_op_comm_ms is waiting, over the steps where that is known.
-- @column in_op_overlap_ms DOUBLE ms | What of in_op_comm_ms is asynchronous.
-- @column bubble_ratio DOUBLE | Idle over window, mean of the steps' ratios.
-- @column bubble_with_wait_ratio DOUBLE | Idle and in_op_wait_ms over window, likewise.
-- @column bubble_over_ideal_ratio DOUBLE | Idle over busy, likewise.
-- @column theory_bubble_ratio DOUBLE | (p - 1) / (v m + p - 1).
-- @column recv_reason VARCHAR | Why receives are not split in some step.
-- @column own_compute_ms DOUBLE ms | forward_step and backward_step without the communication inside, whether or not there is a window.
-- @column own_reason VARCHAR | Why there is no own_compute_ms.
WITH steady AS (
    SELECT
        r.run_id, r.step, r.rank, r.stage, s.warmup,
        b.* EXCLUDE (run_id, step, rank, stage),
        o.own_ns
    FROM _rank_steps AS r
    JOIN step_stats AS s USING (run_id, step)
    -- A step of the warm-up has no figures here.
    LEFT JOIN rank_bubbles AS b
        ON b.run_id = r.run_id AND b.step = r.step AND b.rank = r.rank AND NOT s.warmup
    LEFT JOIN straggler_steps AS o
        ON o.run_id = r.run_id AND o.step = r.step AND o.rank = r.rank AND o.in_verdict
        AND NOT s.warmup
)
SELECT
    run_id,
    rank,
    min(stage) AS stage,
    count(window_ns) AS steps,
    ns_to_ms(
        sum(COLUMNS('^(window|compute|data|in_op_comm|p2p_recv|p2p_send|finalize|other_step|gap)_ns$')) / steps
    ) AS '\1_ms',
    ns_to_ms(sum(window_ns - compute_ns - data_ns - in_op_comm_ns) / steps) AS idle_ms,
    ordered_mean(p2p_recv_wait_ms) AS p2p_recv_wait_ms,
    ordered_mean(p2p_recv_transfer_ms) AS p2p_recv_transfer_ms,
    ordered_mean(in_op_wait_ms) AS in_op_wait_ms,
    ordered_mean(in_op_overlap_ms) AS in_op_overlap_ms,
    ordered_mean(bubble_ratio) AS bubble_ratio,
    ordered_mean(bubble_with_wait_ratio) AS bubble_with_wait_ratio,
    ordered_mean(bubble_over_ideal_ratio) AS bubble_over_ideal_ratio,
    any_value(theory_bubble_ratio) AS theory_bubble_ratio,
    min(recv_reason) AS recv_reason,
    ns_to_ms(sum(own_ns) / count(own_ns)) AS own_compute_ms,
    CASE WHEN bool_and(warmup) THEN 'warmup_only' ELSE min(reason) END AS reason,
    CASE
        WHEN bool_and(warmup) THEN 'warmup_only'
        WHEN own_compute_ms IS NULL THEN 'no_stage_times'
    END AS own_reason
FROM steady
GROUP BY run_id, rank
