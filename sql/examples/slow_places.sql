-- Which host, device or rank is slow in run after run, and since when?
-- @topic fleet
-- @param config VARCHAR = "" | Part of the configuration; every one by default.
-- `recurring` is slow in at least half of three or more runs: take it out of the pool. With fewer
-- runs the verdict waits (`few_runs`). Dates are those of the first and the last slow run among the
-- latest 20; give `--hosts` when you ingest where the subject is a rank.

SELECT
    h.subject,
    h.verdict,
    h.slow_runs,
    h.runs,
    min(r.run_date) AS slow_since,
    max(r.run_date) AS slow_until,
    h.slowdown,
    h.gpu_hours_lost,
    h.reason,
    h.config
FROM straggler_history AS h
LEFT JOIN runs AS r ON list_contains(h.slow_run_ids, r.run_id)
WHERE h.slow_runs > 0 AND contains(coalesce(h.config, ''), $config)
GROUP BY ALL
ORDER BY h.slow_runs DESC, h.gpu_hours_lost DESC NULLS LAST, h.subject, h.config
