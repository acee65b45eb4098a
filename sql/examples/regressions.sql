-- Is a run worse than the runs of its configuration before it, and in what?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `regressed` is beyond what the up to 20 runs before vary by; `regressions` says which figure, and
-- by how much. `not_comparable` is no verdict: `reason` says why, most often too few earlier runs.

SELECT
    run_id,
    run_date,
    verdict,
    baseline_runs,
    step_p50_ms,
    step_p50_ms_change_ratio AS step_change_ratio,
    regressions,
    reason
FROM run_history
WHERE reason IS DISTINCT FROM 'figure_missing' AND ($since IS NULL OR run_date >= $since)
ORDER BY verdict = 'regressed' DESC, run_date DESC NULLS LAST, run_id
LIMIT $top
