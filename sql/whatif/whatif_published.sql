-- Figures of the published analysis for traces of its kind, by its own definitions, to be compared with what it published.
-- Its ideal is the mean over all stages for compute and the median for communication, so a stage
-- with more work counts as slow: whatif_runs has the figures to act on.
-- @grain run_id, figure, subject
-- @column figure VARCHAR | s: the run; launch: the steps of the trace over those replayed without delays; s_kind, s_dp, s_stage: with only the subject as it was; m_w: part of the loss that fixing the slowest 3 % of workers saves; m_s: the last stage, likewise.
-- @column subject VARCHAR | Kind, data-parallel rank, stage or ranks; empty for the run.
-- @column value_ratio DOUBLE | The figure.
WITH spans AS (
    SELECT run_id, step, max(to_ns) - min(from_ns) AS span_ns
    FROM _whatif_operations
    GROUP BY run_id, step
),
sums AS (
    SELECT run_id, scenario, subject, sum(time_ns) AS time_ns
    FROM _whatif_replays
    GROUP BY run_id, scenario, subject
    HAVING count(time_ns) = count(*)
),
whole AS (
    SELECT
        run_id,
        max(time_ns) FILTER (scenario = 'raw') AS raw_ns,
        max(time_ns) FILTER (scenario = 'mean') AS mean_ns
    FROM sums
    GROUP BY run_id
    HAVING bool_or(starts_with(scenario, 'paper_'))
)
SELECT
    s.run_id,
    CASE s.scenario
        WHEN 'raw' THEN 's' WHEN 'paper_kind' THEN 's_kind' WHEN 'paper_replica' THEN 's_dp'
        WHEN 'paper_stage' THEN 's_stage' WHEN 'paper_fix_workers' THEN 'm_w' ELSE 'm_s'
    END AS figure,
    s.subject,
    CASE WHEN starts_with(s.scenario, 'paper_fix')
        THEN ratio(w.raw_ns - s.time_ns, w.raw_ns - w.mean_ns)
        ELSE ratio(s.time_ns, w.mean_ns)
    END AS value_ratio
FROM sums AS s
JOIN whole AS w USING (run_id)
WHERE s.scenario = 'raw' OR starts_with(s.scenario, 'paper_')
UNION ALL
SELECT s.run_id, 'launch', '', ratio(sum(s.span_ns), any_value(w.raw_ns))
FROM spans AS s
JOIN whole AS w USING (run_id)
WHERE w.raw_ns IS NOT NULL
GROUP BY s.run_id
