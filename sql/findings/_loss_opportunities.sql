-- Time that a run loses in a few slow steps, or in operations that take long on one rank after another.
-- @grain run_id, kind
-- @column kind VARCHAR | slow_steps: a few steps far above the others; uneven_operations: operations that take long on one rank after another.
-- @column gain_ratio DOUBLE | Part of the step time that was lost.
-- @column change VARCHAR | What to do.
-- @column confidence VARCHAR | measured: from times of steps; replay: from the replay of the run.
-- @column evidence VARCHAR | What it rests on, in one sentence.
WITH steady AS (
    SELECT
        run_id, step, step_ms, outlier,
        quantile_cont(step_ms, 0.5) OVER (PARTITION BY run_id) AS median_ms,
        -- The first step that is no outlier ends the warm-up.
        min(step) FILTER (NOT outlier) OVER (PARTITION BY run_id) AS first_step
    FROM step_stats
    WHERE NOT warmup AND step_ms IS NOT NULL
),
judged AS (
    SELECT
        *,
        coalesce(outlier AND step_ms > median_ms AND step > first_step, false) AS slow,
        CASE WHEN slow THEN step_ms - median_ms END AS over_ms,
        lag(slow, 1, false) OVER (PARTITION BY run_id ORDER BY step) AS slow_before
    FROM steady
),
gaps AS (
    SELECT run_id, step - lag(step) OVER (PARTITION BY run_id ORDER BY step) AS gap
    FROM judged
    WHERE slow AND NOT slow_before
),
rhythms AS (
    SELECT run_id, any_value(usual) AS every_steps
    FROM (
        SELECT run_id, gap, quantile_disc(gap, 0.5) OVER (PARTITION BY run_id) AS usual
        FROM gaps
    )
    GROUP BY run_id
    HAVING count(*) FILTER (gap = usual) >= greatest(2, 0.8 * count(gap))
),
-- Runs that lose 5 % or more of their time in a few steps far above the others. Leading slow steps are
-- warm-up, and steps with more work take longer.
slow_steps AS (
    SELECT
        j.run_id,
        count(*) FILTER (j.slow) AS slow_steps,
        count(*) AS steps,
        any_value(j.median_ms) AS median_ms,
        ordered_mean(j.over_ms) AS excess_ms,
        any_value(h.every_steps) AS every_steps,
        -- What comes at times is a sample where not every step is printed. What comes every so many
        -- steps comes in none between.
        ratio(
            ordered_sum(j.over_ms),
            any_value(CASE WHEN h.every_steps IS NULL THEN p.steps_ms ELSE p.job_ms END)
        ) AS lost_ratio,
        arg_min(j.step, (-j.step_ms, j.step)) FILTER (j.slow) AS longest_step,
        max(j.step_ms) FILTER (j.slow) AS longest_ms
    FROM judged AS j
    JOIN _run_spans AS p USING (run_id)
    LEFT JOIN rhythms AS h USING (run_id)
    ANTI JOIN _uneven_runs AS u ON u.run_id = j.run_id
    GROUP BY j.run_id
    HAVING count(*) FILTER (j.slow) >= 3 AND lost_ratio >= 0.05
),
kinds AS (
    SELECT
        run_id,
        arg_min(kind, (-lost_ms, kind)) AS kind,
        max(lost_ms) AS lost_ms
    FROM whatif_kinds
    GROUP BY run_id
),
-- Replays of the usual steps: a single slow step is no matter of single operations.
usual AS (
    SELECT w.run_id, ordered_mean(w.t_ms) AS t_ms, ordered_mean(w.peer_ms) AS peer_ms
    FROM whatif_steps AS w
    JOIN step_stats AS s USING (run_id, step)
    WHERE NOT coalesce(s.outlier, false)
    GROUP BY w.run_id
),
ranks AS (
    SELECT
        run_id,
        arg_min(rank, (-lost_ms, rank)) AS rank,
        max(lost_ms) AS lost_ms
    FROM whatif_ranks
    GROUP BY run_id
)
SELECT
    run_id, 'slow_steps' AS kind, lost_ratio AS gain_ratio,
    'See what the job does in these steps: checkpoints, evaluation, a data loader that runs dry,'
        || ' garbage collection.' AS change,
    'measured' AS confidence,
    format(
        '{} of {} steps{} take {:.1f} ms longer than the median step ({:.1f} ms) on average: {:.1f} % of'
            || ' the time. The longest is step {} ({:.1f} ms).',
        slow_steps, steps, coalesce(format(', one every {},', every_steps), ''), excess_ms, median_ms,
        100 * lost_ratio, longest_step, longest_ms
    ) AS evidence
FROM slow_steps
UNION ALL
SELECT
    w.run_id, 'uneven_operations', 1 - ratio(w.peer_ms, w.t_ms),
    'Look for pauses that move from rank to rank: garbage collection, other processes on the hosts,'
        || ' samples of different length.',
    'replay',
    format(
        'Operations as long as the median of their kind would save {:.1f} ms of a step of {:.1f} ms'
            || ' ({:.1f} %): {} alone {:.1f} ms, but no rank alone more than {:.1f} ms (rank {}).',
        w.t_ms - w.peer_ms, w.t_ms, 100 * (1 - w.peer_ms / w.t_ms), k.kind, k.lost_ms, r.lost_ms, r.rank
    )
FROM whatif_runs AS w
JOIN kinds AS k USING (run_id)
JOIN ranks AS r USING (run_id)
JOIN usual AS u USING (run_id)
ANTI JOIN slow_steps AS s ON s.run_id = w.run_id
WHERE w.peer_ms <= 0.9 * w.t_ms AND u.peer_ms <= 0.9 * u.t_ms AND r.lost_ms < (w.t_ms - w.peer_ms) / 2
