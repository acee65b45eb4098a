-- Where in the schedule a rank idles: filling the pipeline, in its steady part, or draining it.
-- The phases of 1F1B divide the window without rest: warm-up, with the receive named help, until the
-- rank's first steady operation or, without one, its first of the cool-down; cool-down from there or,
-- without one, from the end of the last steady operation.
-- @report Bubble by phase of the schedule
-- @grain run_id, step, rank, phase
-- @column phase VARCHAR | warmup, steady or cooldown, as the trace names them.
-- @column phase_ms DOUBLE ms | Length of the phase within the window.
-- @column busy_ms DOUBLE ms | Computing and data loading operations with the communication inside them.
-- @column idle_ms DOUBLE ms | The rest of the phase.
-- @column bubble_ratio DOUBLE | Idle of the phase over the whole window: the three add up to bubble_ratio of rank_bubbles.
-- @column phase_ns BIGINT ns | phase_ms, exactly.
-- @column busy_ns BIGINT ns | busy_ms, exactly.
-- @column idle_ns BIGINT ns | idle_ms, exactly.
WITH named AS (
    SELECT
        run_id, step, rank,
        min(from_ns) FILTER (phase = 'steady') AS first_steady_ns,
        max(to_ns) FILTER (phase = 'steady') AS last_steady_ns,
        min(from_ns) FILTER (phase = 'cooldown') AS first_cooldown_ns
    FROM _op_intervals
    GROUP BY run_id, step, rank
),
bounds AS (
    SELECT
        s.run_id, s.step, s.rank, s.stage,
        w.window_start_ns,
        w.window_end_ns,
        coalesce(n.first_cooldown_ns, n.last_steady_ns) AS named_drain_ns,
        least(w.window_end_ns, named_drain_ns) AS drain_ns,
        least(drain_ns, n.first_steady_ns) AS fill_ns,
        CASE
            WHEN w.reason IS NOT NULL THEN w.reason
            WHEN NOT s.finished THEN 'step_unfinished'
            WHEN named_drain_ns IS NULL THEN 'phases_not_named'
        END AS reason
    FROM _rank_steps AS s
    JOIN _step_windows AS w USING (run_id, step)
    LEFT JOIN named AS n USING (run_id, step, rank)
),
phases AS (
    SELECT
        * EXCLUDE (named_drain_ns, drain_ns, fill_ns),
        unnest(['warmup', 'steady', 'cooldown']) AS phase,
        unnest([window_start_ns, fill_ns, drain_ns]) AS phase_start_ns,
        unnest([fill_ns, drain_ns, window_end_ns]) AS phase_end_ns
    FROM bounds
),
timed AS (
    SELECT
        p.run_id, p.step, p.rank, p.stage, p.phase, p.reason,
        p.window_end_ns - p.window_start_ns AS window_ns,
        p.phase_end_ns - p.phase_start_ns AS phase_ns,
        try_cast(coalesce(
            sum(clipped_ns(o.from_ns, o.to_ns, p.phase_start_ns, p.phase_end_ns)), 0
        ) AS BIGINT) AS busy_ns
    FROM phases AS p
    LEFT JOIN _op_intervals AS o
        ON o.run_id = p.run_id AND o.step = p.step AND o.rank = p.rank
        AND o.part IN ('compute', 'data') AND p.reason IS NULL
    GROUP BY ALL
),
known AS (
    SELECT
        run_id, step, rank, stage, phase, reason, window_ns,
        CASE WHEN reason IS NULL THEN phase_ns END AS phase_ns,
        CASE WHEN reason IS NULL THEN busy_ns END AS busy_ns
    FROM timed
)
SELECT
    run_id, step, rank, phase, stage,
    ns_to_ms(phase_ns) AS phase_ms,
    ns_to_ms(busy_ns) AS busy_ms,
    ns_to_ms(phase_ns - busy_ns) AS idle_ms,
    (phase_ns - busy_ns) / window_ns AS bubble_ratio,
    reason,
    phase_ns,
    busy_ns,
    phase_ns - busy_ns AS idle_ns
FROM known
