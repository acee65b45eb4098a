-- What is wrong with a run, why, and what is to be done?
-- @topic fleet
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Each row is one finding, the most severe first. `cause` says what the evidence points at: device, node,
-- link, data, work, stage or input. No row means that no problem was found.

SELECT f.run_id, f.severity, f.kind, f.subject, f.since, f.cause, f.evidence, f.advice, f.cost_gpu_hours
FROM findings AS f
WHERE f.run_id IS NOT NULL AND contains(f.run_id, $run)
ORDER BY
    f.level, f.lost_ratio DESC NULLS LAST, f.run_id, f.kind, f.subject
LIMIT $top
