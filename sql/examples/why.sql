-- What is wrong with a run, why, and what is to be done?
-- @topic fleet
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Each row is one finding, the most severe first; hosts and links that bandwidth tests show to be slow
-- stand beside the run that is asked for, or the latest. `cause` says what the evidence points at: device,
-- node, link, data, work, stage or input. No row means that no problem was found.

WITH found AS (
    SELECT
        run_id, severity, level, kind, subject, since, cause, evidence, advice, cost_gpu_hours, lost_ratio
    FROM findings
    WHERE run_id IS NOT NULL
    UNION ALL BY NAME
    SELECT
        unnest(CASE WHEN $run = '' THEN [latest_run] ELSE run_ids END) AS run_id,
        severity, level, kind, subject, since, cause, evidence, advice
    FROM incidents
    WHERE runs_unit = 'test'
)
SELECT run_id, severity, kind, subject, since, cause, evidence, advice, cost_gpu_hours
FROM found
WHERE contains(run_id, $run)
ORDER BY level, lost_ratio DESC NULLS LAST, run_id, kind, subject
LIMIT $top
