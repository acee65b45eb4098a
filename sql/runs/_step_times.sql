-- Time of every step that an input shows, or why it has none.
-- @grain run_id, step
-- @column step_ns DOUBLE ns | Rank traces: from the first operation to the end of the last, over ranks. Logs: the progress record's time.
-- @column time_basis VARCHAR | What the time is, as in step_stats.
-- @column traced BOOLEAN | Of a trace, also where that has records of its steps.
WITH traced AS (
    SELECT
        s.run_id,
        s.step,
        max(s.last_ns) - min(s.first_ns) AS step_ns,
        CASE
            WHEN bool_or(r.simulated) THEN 'simulated'
            WHEN bool_or(k.run_id IS NOT NULL) THEN 'step_not_marked'
            WHEN bool_or(d.step IS NOT NULL) THEN 'step_shifted'
            WHEN NOT bool_and(s.finished) THEN 'step_unfinished'
            -- Traces without any optimizer_step do not end steps with it.
            WHEN NOT bool_and(e.ended) AND bool_or(bool_or(e.ended)) OVER (PARTITION BY s.run_id)
                THEN 'step_unfinished'
            WHEN NOT coalesce(c.aligned, false) THEN 'clocks_not_aligned'
            WHEN lost_in_clocks(c.uncertainty_ns, max(s.last_ns) - min(s.first_ns))
                THEN 'below_clock_uncertainty'
        END AS reason
    FROM _rank_steps AS s
    -- A trace that has records of its steps is timed by them.
    ANTI JOIN _log_records AS l
        ON l.run_id = s.run_id AND l.step = s.step AND l.step_ns IS NOT NULL
    JOIN _rank_spans AS e USING (run_id, step, rank)
    LEFT JOIN _shifted_steps AS d USING (run_id, step)
    LEFT JOIN _step_clocks AS c USING (run_id, step)
    LEFT JOIN _kernel_runs AS k USING (run_id)
    JOIN runs AS r USING (run_id)
    GROUP BY s.run_id, s.step, c.aligned, c.uncertainty_ns
),
logged AS (
    SELECT run_id, step FROM _log_records
    UNION
    SELECT run_id, step FROM layer_times
)
SELECT
    run_id,
    step,
    CASE WHEN reason IS NULL THEN step_ns::DOUBLE END AS step_ns,
    CASE WHEN reason IS NULL THEN 'traced' END AS time_basis,
    false AS restarted,
    true AS traced,
    reason
FROM traced
UNION ALL BY NAME
SELECT
    l.run_id,
    l.step,
    r.step_ns,
    r.loss,
    r.basis AS time_basis,
    r.restarts,
    coalesce(r.restarted, false) AS restarted,
    l.run_id IN (SELECT run_id FROM _rank_steps) AS traced,
    CASE
        WHEN r.run_id IS NULL THEN 'no_record'
        WHEN r.step_ns IS NULL THEN r.untimed_reason
    END AS reason
FROM logged AS l
LEFT JOIN _log_records AS r ON r.run_id = l.run_id AND r.step = l.step
ANTI JOIN traced AS t ON t.run_id = l.run_id AND t.step = l.step
