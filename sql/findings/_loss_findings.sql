-- Findings about the loss that a log prints: loss_not_finite.
-- @grain run_id, kind, subject
-- @column kind VARCHAR | loss_not_finite.
-- @column severity VARCHAR | critical where the loss of the last step is not finite, else notice.
-- @column subject VARCHAR | loss.
-- @column since TIMESTAMP | When the first of these steps was printed; NULL where the input does not say.
-- @column brief VARCHAR | The same in a few words.
-- @column lost_ratio DOUBLE | Time of these steps, which train nothing, over that of all, warm-up left out.
WITH losses AS (
    SELECT
        l.run_id, l.step, l.not_finite_ratio,
        -- Warm-up counts in no cost.
        CASE WHEN NOT s.warmup THEN l.step_ns END AS step_ns,
        -- A job that began again may end before the step that it had come to.
        row_number() OVER (PARTITION BY l.run_id ORDER BY l.restarts, l.step) AS place
    FROM _log_records AS l
    JOIN step_stats AS s USING (run_id, step)
    WHERE l.not_finite_ratio IS NOT NULL
),
beside AS (
    SELECT
        *,
        coalesce(max(place) FILTER (not_finite_ratio < 1) OVER (PARTITION BY run_id), 0) AS last_finite,
        count(*) OVER (PARTITION BY run_id) AS steps,
        -- To the end, or all of them where it is finite again.
        not_finite_ratio > 0 AND (place > last_finite OR last_finite = steps) AS seen
    FROM losses
),
runs_seen AS (
    SELECT
        run_id,
        any_value(steps) AS steps,
        any_value(last_finite < steps) AS lasting,
        round(ordered_sum(not_finite_ratio))::BIGINT AS lost_steps,
        arg_min(step, place) FILTER (seen) AS first_step,
        arg_max(step, place) FILTER (seen) AS last_step,
        ratio(ordered_sum(not_finite_ratio * step_ns), ordered_sum(step_ns)) AS lost_ratio
    FROM beside
    GROUP BY run_id
    HAVING max(not_finite_ratio) > 0
),
records AS (
    SELECT run_id, step, max(logged_at) AS logged_at
    FROM train_steps
    SEMI JOIN runs_seen USING (run_id)
    GROUP BY run_id, step
)
SELECT
    s.run_id,
    'loss_not_finite' AS kind,
    CASE WHEN s.lasting THEN 'critical' ELSE 'notice' END AS severity,
    CASE WHEN s.lasting THEN 'faults' END AS gate,
    'loss' AS subject,
    r.logged_at AS since,
    CASE WHEN s.lasting
        THEN format(
            'loss is NaN or infinite from step {}{} to the last, {}: in {} of {} steps.',
            s.first_step, coalesce(strftime(r.logged_at, ' (%Y-%m-%d %H:%M:%S)'), ''), s.last_step,
            s.lost_steps, s.steps
        )
        ELSE format(
            'loss was NaN or infinite in {} of {} steps ({}), and is finite since.',
            s.lost_steps, s.steps, CASE s.first_step
                WHEN s.last_step THEN s.first_step::VARCHAR ELSE concat(s.first_step, ' to ', s.last_step)
            END
        )
    END AS evidence,
    CASE WHEN s.lasting THEN format('from step {} to the last, {}', s.first_step, s.last_step)
        ELSE format('in {} of {} steps', s.lost_steps, s.steps)
    END AS brief,
    s.lost_ratio,
    'unclear' AS cause,
    CASE WHEN s.lasting
        THEN format(
            'These steps train nothing: stop the job if it runs, and go back to a checkpoint before step {}.'
                || ' Look at gradients, learning rate and data of the steps before it.', s.first_step
        )
        ELSE 'See what the data of these steps were, where they come again.'
    END AS advice
FROM runs_seen AS s
ASOF LEFT JOIN records AS r ON r.run_id = s.run_id AND r.step >= s.first_step
