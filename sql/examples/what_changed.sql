-- Where did the difference to the baseline go, operation by operation?
-- @topic fleet
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- The rows of a run add up to the change of its step time. A moment in which several ranks work counts
-- for each of them in equal parts.

SELECT run_id, op, kind, stage, baseline_ms, run_ms, change_ms, share_ratio
FROM step_changes
WHERE contains(run_id, $run)
ORDER BY run_id, abs(change_ms) DESC, op, stage
LIMIT $top
