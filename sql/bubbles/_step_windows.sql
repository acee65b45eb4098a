-- Pipeline window of a step over all ranks on the reference clock, or why it has none.
-- A window of which the clocks leave more than a tenth open is none.
-- @grain run_id, step
-- @column window_start_ns BIGINT ns | Earliest start of an operation of the step.
-- @column window_end_ns BIGINT ns | Latest end of a backward_step.
-- @column uncertainty_ns BIGINT ns | How far off its length can be, for the clocks that it was read from.
WITH steps AS (
    SELECT
        s.run_id,
        s.step,
        min(s.first_ns) AS window_start_ns,
        max(s.last_backward_ns) AS window_end_ns,
        count(DISTINCT s.stage) AS stages,
        count(DISTINCT s.stage) FILTER (s.finished) AS finished_stages
    FROM _rank_steps AS s
    GROUP BY s.run_id, s.step
)
SELECT
    s.run_id,
    s.step,
    s.window_start_ns,
    s.window_end_ns,
    c.uncertainty_ns,
    CASE
        WHEN r.simulated THEN 'simulated'
        WHEN k.run_id IS NOT NULL THEN 'kernels_only'
        WHEN r.pp IS NULL THEN 'topology_unknown'
        WHEN o.rank_order IS NULL THEN 'stages_contradict'
        WHEN d.step IS NOT NULL THEN 'step_shifted'
        WHEN s.stages < r.pp THEN 'stages_missing'
        WHEN s.finished_stages < r.pp THEN 'step_unfinished'
        WHEN s.window_end_ns = s.window_start_ns THEN 'below_clock_resolution'
        WHEN NOT coalesce(c.aligned, false) OR NOT c.met THEN 'clocks_not_aligned'
        WHEN lost_in_clocks(c.uncertainty_ns, s.window_end_ns - s.window_start_ns)
            THEN 'below_clock_uncertainty'
    END AS reason
FROM steps AS s
JOIN runs AS r USING (run_id)
JOIN _rank_orders AS o USING (run_id)
LEFT JOIN _kernel_runs AS k USING (run_id)
LEFT JOIN _shifted_steps AS d USING (run_id, step)
LEFT JOIN _step_clocks AS c USING (run_id, step)
