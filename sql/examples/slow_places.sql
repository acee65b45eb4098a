-- Which host, device or rank is slow in run after run, and since when?
-- @topic fleet
-- @param config VARCHAR = "" | Part of the configuration; every one by default.
-- `recurring` is slow in at least half of three or more runs, or in the latest three: take it out of
-- the pool. The verdict waits for more runs (`few_runs`), with one peer for many (`one_peer`).
-- `slow_since` is the first slow run after three in a row that were ok; give `--hosts` when you
-- ingest where the subject is a rank.

SELECT
    h.subject,
    h.verdict,
    h.slow_runs,
    h.runs,
    h.since AS slow_since,
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
