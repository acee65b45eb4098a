-- What is wrong, since when, why, and what does it cost a day?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Incidents last seen from then on; every one by default.
-- @param top UBIGINT = 20 | Rows at most.
-- A row is one problem of one configuration over its runs, the dearest first. `open` is true while one
-- of the latest 3 runs that could have it has it, or one of the last 36 hours, and of a regression until
-- 3 runs in a row are better.
-- The cost is for a job that runs all day; cost_bound says which way it errs.
-- `FROM incidents` also has the runs of each, in `run_ids`.

SELECT
    incident, open, severity, kind, subject, since, last_seen, slow_runs, runs, cause,
    cost_gpu_hours_per_day, cost_bound, evidence, advice, latest_run
FROM incidents
WHERE $since IS NULL OR last_seen >= $since
ORDER BY open DESC, level = 3, cost_gpu_hours_per_day DESC NULLS LAST, level, last_seen DESC, incident
LIMIT $top
