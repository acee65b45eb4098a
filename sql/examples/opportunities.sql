-- What would make a run faster?
-- @topic fleet
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `gain_ratio` is the part of the step time that the change would save; `confidence` says what that
-- rests on.

SELECT run_id, kind, gain_ratio, confidence, change, evidence
FROM opportunities
WHERE contains(run_id, $run)
ORDER BY gain_ratio DESC, run_id, kind
LIMIT $top
