-- In which phase of the schedule does the pipeline idle?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- A part of the whole window: the phases of a stage add up to its bubble. Idle in `warmup` and
-- `cooldown` is filling and draining, which theory allows; idle in `steady` is a stage that waits
-- for a slower one.

SELECT
    p.run_id,
    p.stage,
    p.phase,
    avg(p.phase_ms) AS phase_ms,
    avg(p.idle_ms) AS idle_ms,
    avg(p.bubble_ratio) AS bubble_ratio
FROM phase_bubbles AS p
JOIN step_stats AS s USING (run_id, step)
WHERE p.bubble_ratio IS NOT NULL AND NOT s.warmup AND contains(p.run_id, $run)
GROUP BY p.run_id, p.stage, p.phase
ORDER BY p.run_id, p.stage, list_position(['warmup', 'steady', 'cooldown'], p.phase)
