-- One headline row per run.
-- @report Runs
-- @grain run_id
-- @column steps BIGINT steps | Steps seen; NULL for plans.
-- @column step_p50_ms DOUBLE ms | Median time of a step, warm-up left out.
-- @column bubble_ratio DOUBLE | Measured pipeline bubble, idle over window: mean over stages, median over steps without warm-up. NULL where it is not measured: theory and models are in stage_bubbles.
-- @column slowest_stage INTEGER | Stage that is the busiest in most steps, the first of equal ones.
-- @column stragglers BIGINT ranks | Ranks with the verdict straggler; NULL where no rank could be compared. Suspects are counted beside them.
-- @column comm_ratio DOUBLE | Communication inside operations over the pipeline window, both summed over ranks and steps.
-- @column busbw_gbps DOUBLE GB/s | Median bus bandwidth of the kind of call with the most bytes that has one, kinds left out whose median time is under 10 ticks of the trace's clock.
-- @column coverage_ratio DOUBLE | Ranks seen over expected, times lines understood over those and the rejected.
-- @column rejects BIGINT lines | Lines that were not understood.
-- @column straggler_rank INTEGER | Straggler or suspect that lost most time, the lowest rank of equal ones.
-- @column time_lost_ms DOUBLE ms | What stragglers and suspects held the job up: in every step the largest excess of one that is slow in it, at most the step's time, summed. 0 where ranks were compared and none is either.
-- @column gpu_hours_lost DOUBLE GPU hours | time_lost_ms on every rank of the job.
-- @column culprit_stability_ratio DOUBLE | Share of the steps with a slow rank whose slowest of the job is the most frequent one: near 1 it is the same rank every time.
-- @column suspects BIGINT ranks | Ranks with the verdict suspect: too few steps or one peer.
-- @column slowest_stage_steps BIGINT steps | Steps in which slowest_stage was the busiest.
-- @column busbw_call VARCHAR | The kind of call that busbw_gbps is of: collective, group, element type, size, and whether only ranks by themselves are known, whose times include waiting.
-- @column busbw_reason VARCHAR | coarse_calls: every kind of call with a bandwidth is too short for the clock. NULL where there is a figure, or where coverage says why there is none.
-- @column not_computable VARCHAR[] | Figures that no row of the run has, each as `model.column: reason`.
WITH step_bubbles AS (
    SELECT b.run_id, b.step, ordered_mean(b.bubble_ratio) AS bubble_ratio
    FROM stage_bubbles AS b
    JOIN step_stats AS s USING (run_id, step)
    WHERE b.basis = 'measured' AND NOT s.warmup
    GROUP BY b.run_id, b.step
    HAVING count(*) = count(b.bubble_ratio)
),
bubbles AS (
    SELECT run_id, quantile_cont(bubble_ratio, 0.5) AS bubble_ratio
    FROM step_bubbles
    GROUP BY run_id
),
stages AS (
    SELECT
        run_id,
        arg_min(stage, (-busiest_steps, stage)) AS slowest_stage,
        max(busiest_steps) AS slowest_stage_steps
    FROM stage_balance
    WHERE busiest_steps > 0
    GROUP BY run_id
),
verdicts AS (
    SELECT
        run_id,
        count(*) FILTER (verdict = 'straggler') AS stragglers,
        count(*) FILTER (verdict = 'suspect') AS suspects
    FROM straggler_ranks
    WHERE verdict <> 'not_comparable'
    GROUP BY run_id
),
windows AS (
    SELECT run_id, ratio(sum(in_op_comm_ns), sum(window_ns)) AS comm_ratio
    FROM rank_bubbles
    GROUP BY run_id
),
calls AS (
    SELECT
        run_id,
        arg_min(
            {
                'gbps': busbw_p50_gbps,
                'kind': concat_ws(
                    ' ', collective, group_kind, dtype, size_bytes || ' bytes',
                    CASE WHEN time_basis = 'own' THEN 'of single ranks' END
                )
            },
            (-size_bytes::HUGEINT * calls, collective, group_kind, dtype, size_bytes)
        ) FILTER (time_p50_ms >= ns_to_ms(10 * coalesce(clock_tick_ns, 0))) AS headline
    FROM collective_bandwidth
    JOIN runs USING (run_id)
    WHERE busbw_p50_gbps IS NOT NULL
    GROUP BY run_id
)
SELECT
    r.run_id,
    r.format,
    r.config,
    r.run_date,
    c.steps,
    t.step_p50_ms,
    b.bubble_ratio,
    g.slowest_stage,
    v.stragglers,
    w.comm_ratio,
    l.headline.gbps AS busbw_gbps,
    c.coverage_ratio,
    c.rejects,
    x.straggler_rank,
    x.time_lost_ms,
    x.gpu_hours_lost,
    x.culprit_stability_ratio,
    v.suspects,
    g.slowest_stage_steps,
    c.not_computable,
    l.headline.kind AS busbw_call,
    CASE WHEN l.run_id IS NOT NULL AND l.headline IS NULL THEN 'coarse_calls' END AS busbw_reason
FROM runs AS r
JOIN coverage AS c USING (run_id)
LEFT JOIN _run_spans AS t USING (run_id)
LEFT JOIN bubbles AS b USING (run_id)
LEFT JOIN stages AS g USING (run_id)
LEFT JOIN verdicts AS v USING (run_id)
LEFT JOIN _run_losses AS x USING (run_id)
LEFT JOIN windows AS w USING (run_id)
LEFT JOIN calls AS l USING (run_id)
