-- A pipeline stage in a row: means over the run's steady steps of its bubble, window and load.
-- A mean of a part is its sum over the ranks' steps with a window over their number, so that parts
-- add up to the window.
-- @grain run_id, stage
-- @column basis VARCHAR | What bubble_ratio rests on: measured where it can be, else modelled, else theory or theory_simulator; see stage_bubbles.
-- @column ranks BIGINT ranks | Ranks behind the bubble; NULL for theory.
-- @column bubble_ratio DOUBLE | Idle over window, mean over the steps.
-- @column bubble_min_ratio DOUBLE | Measured: that of the stage's rank with the smallest.
-- @column bubble_max_ratio DOUBLE | Measured: that of the rank with the largest.
-- @column bubble_over_ideal_ratio DOUBLE | Idle over busy, mean over the steps.
-- @column modelled_bubble_ratio DOUBLE | Bubble by the time line of the stages' own times, mean over the steps; beside a measured one too.
-- @column theory_bubble_ratio DOUBLE | (p - 1) / (v m + p - 1).
-- @column theory_over_ideal_ratio DOUBLE | (p - 1) / (v m).
-- @column covered_ratio DOUBLE | Of logs: the busiest stage's listed modules over the step's time.
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
-- @column in_op_wait_ms DOUBLE ms | What of in_op_comm_ms is waiting; NULL unless that is known of every rank's step.
-- @column window_reason VARCHAR | Why there is no window, or no in_op_wait_ms.
-- @column micro_batch_ms DOUBLE ms | Time per micro-batch, see stage_balance.
-- @column share_ratio DOUBLE | The stage's part of the sum over stages, see stage_balance.
-- @column busiest_steps BIGINT steps | Steps in which this stage was the busiest.
-- @column balance_reason VARCHAR | Why there is no time per micro-batch or no share, or what it covers.
WITH bases AS (
    SELECT
        b.run_id, b.stage, b.basis,
        max(b.ranks) AS ranks,
        ordered_mean(b.bubble_ratio) AS bubble_ratio,
        ordered_mean(b.bubble_over_ideal_ratio) AS bubble_over_ideal_ratio,
        any_value(b.theory_bubble_ratio) AS theory_bubble_ratio,
        any_value(b.theory_over_ideal_ratio) AS theory_over_ideal_ratio,
        ordered_mean(b.covered_ratio) AS covered_ratio,
        min(b.reason) AS reason
    FROM stage_bubbles AS b
    LEFT JOIN step_stats AS s USING (run_id, step)
    WHERE NOT coalesce(s.warmup, false)
    GROUP BY b.run_id, b.stage, b.basis
),
bubbles AS (
    SELECT
        *,
        max(bubble_ratio) FILTER (basis = 'modelled') OVER (PARTITION BY run_id, stage)
            AS modelled_bubble_ratio
    FROM bases
    QUALIFY row_number() OVER (
        PARTITION BY run_id, stage
        ORDER BY bubble_ratio IS NULL,
            array_position(['measured', 'modelled', 'theory', 'theory_simulator'], basis)
    ) = 1
),
windows AS (
    SELECT
        b.run_id,
        b.stage,
        count(DISTINCT b.step) FILTER (b.window_ns IS NOT NULL) AS steps,
        ns_to_ms(
            sum(COLUMNS('^(window|compute|data|in_op_comm|p2p_recv|p2p_send|finalize|other_step|gap)_ns$'))
            / count(b.window_ns)
        ) AS '\1_ms',
        ns_to_ms(
            sum(b.window_ns - b.compute_ns - b.data_ns - b.in_op_comm_ns) / count(b.window_ns)
        ) AS idle_ms,
        CASE WHEN count(b.in_op_wait_ms) = count(b.window_ns) THEN ordered_mean(b.in_op_wait_ms) END
            AS in_op_wait_ms,
        min(b.reason) AS window_reason
    FROM rank_bubbles AS b
    JOIN step_stats AS s USING (run_id, step)
    WHERE NOT s.warmup
    GROUP BY b.run_id, b.stage
),
ranks AS (
    SELECT
        run_id,
        stage,
        min(bubble_ratio) AS bubble_min_ratio,
        max(bubble_ratio) AS bubble_max_ratio,
        min(reason) AS reason
    FROM rank_summary
    GROUP BY run_id, stage
)
SELECT
    b.run_id, b.stage, b.basis, b.ranks, b.bubble_ratio,
    CASE b.basis WHEN 'measured' THEN r.bubble_min_ratio END AS bubble_min_ratio,
    CASE b.basis WHEN 'measured' THEN r.bubble_max_ratio END AS bubble_max_ratio,
    b.bubble_over_ideal_ratio,
    b.modelled_bubble_ratio,
    b.theory_bubble_ratio, b.theory_over_ideal_ratio, b.covered_ratio, b.reason,
    coalesce(w.steps, 0) AS steps,
    w.window_ms, w.compute_ms, w.data_ms, w.in_op_comm_ms, w.p2p_recv_ms,
    w.p2p_send_ms, w.finalize_ms, w.other_step_ms, w.gap_ms,
    w.idle_ms, w.in_op_wait_ms,
    CASE
        WHEN w.in_op_wait_ms IS NOT NULL THEN NULL
        WHEN r.run_id IS NOT NULL THEN coalesce(w.window_reason, r.reason)
        WHEN t.run_id IS NOT NULL THEN 'forward_modules_only'
        ELSE 'no_stage_times'
    END AS window_reason,
    t.micro_batch_ms,
    t.share_ratio,
    t.busiest_steps,
    CASE WHEN t.run_id IS NULL THEN 'no_stage_times' ELSE t.reason END AS balance_reason
FROM bubbles AS b
LEFT JOIN windows AS w USING (run_id, stage)
LEFT JOIN ranks AS r USING (run_id, stage)
LEFT JOIN stage_balance AS t USING (run_id, stage)
