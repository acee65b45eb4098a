-- Findings about the steps of one run by itself: slowed.
-- @grain run_id, kind, subject
-- @column kind VARCHAR | slowed.
-- @column severity VARCHAR | critical where steps exceed the bound twice, else warning.
-- @column subject VARCHAR | steps.
-- @column since TIMESTAMP | When steps became slower; NULL where the input does not say, and of what grew little by little.
-- @column brief VARCHAR | The same in a few words.
-- @column lost_ratio DOUBLE | Time lost over the time of the steps.
-- @column cost_basis VARCHAR | bound. It is no limit of what a day costs, which is more if the job goes on like this.
SELECT
    w.run_id,
    'slowed' AS kind,
    CASE WHEN w.after_ms - w.before_ms > 2 * w.bound_ms THEN 'critical' ELSE 'warning' END AS severity,
    'steps' AS subject,
    k.rank, k.stage, k.host, k.device,
    w.since,
    format(
        'steps take {:.1f} ms since step {}{}, {:.1f} % longer than before ({:.1f} ms): {} of {} steps{}.',
        w.after_ms, w.since_step, coalesce(strftime(w.since, ' (%Y-%m-%d %H:%M:%S)'), ''),
        100 * (w.after_ms / w.before_ms - 1), w.before_ms, w.slow_steps, w.steps,
        coalesce(format(
            '; in {} the slowest rank{} went from {:.1f} to {:.1f} ms, the fastest from {:.1f} to {:.1f} ms',
            t.name, coalesce(format(' ({})', t.rank), ''), t.longest_before_ms, t.longest_ms,
            t.shortest_before_ms, t.shortest_ms
        ), '; ' || k.seen, '')
    ) AS evidence,
    concat(
        format('{:.1f} % longer since step {}', 100 * (w.after_ms / w.before_ms - 1), w.since_step),
        format(', with rank {}', k.rank)
    ) AS brief,
    ratio(w.slow_steps * (w.after_ms - w.before_ms), s.steps_ms) AS lost_ratio,
    'bound' AS cost_basis,
    'unclear' AS cause,
    CASE WHEN k.rank IS NOT NULL
        THEN format(
            'Check clocks, temperature and ECC of rank {}{}, or drain it.', k.rank, coalesce(' on host ' || k.host, '')
        )
        ELSE 'See what happened at that time: logs of hosts and network, other jobs, checkpoints, a restart.'
            || CASE WHEN t.name IS NULL THEN '' ELSE ' Some ranks are slow, not all: trace them.' END
    END AS advice
FROM _slowed_runs AS w
JOIN _run_spans AS s USING (run_id)
LEFT JOIN _slowed_timers AS t USING (run_id)
LEFT JOIN _late_ranks AS k ON k.run_id = w.run_id AND abs(k.since_step - w.since_step) <= 1
UNION ALL BY NAME
SELECT
    g.run_id,
    'slowed' AS kind,
    CASE WHEN g.longer_ms > 2 * g.bound_ms THEN 'critical' ELSE 'warning' END AS severity,
    'steps' AS subject,
    format(
        'steps took ever longer: {:.1f} ms in the first fifth of {} steps, then {:.1f}, {:.1f}, {:.1f} and {:.1f} ms,'
        || ' {:.1f} % more at the end.',
        g.fifths_ms[1], g.steps, g.fifths_ms[2], g.fifths_ms[3], g.fifths_ms[4], g.fifths_ms[5],
        100 * (g.fifths_ms[5] / g.fifths_ms[1] - 1)
    ) AS evidence,
    format('{:.1f} % longer at the end, little by little', 100 * (g.fifths_ms[5] / g.fifths_ms[1] - 1)) AS brief,
    ratio(g.steps * g.longer_ms, s.steps_ms) AS lost_ratio,
    'bound' AS cost_basis,
    'unclear' AS cause,
    'See what grows with time: memory and its fragments, what the loader keeps, lengths of sequences, temperatures.'
        AS advice
FROM _slowing_runs AS g
JOIN _run_spans AS s USING (run_id)
