-- What needs attention tonight?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top UBIGINT = 50 | Rows at most.
-- Each row is one finding of one run, the most severe first; no row means that no problem was found.
-- `incidents` joins them over runs, and alone has hosts and links that are slow in bandwidth tests. A
-- finding without a run is a file that cannot be read.

SELECT f.severity, f.kind, f.run_id, r.run_date, f.since, f.evidence, f.cost_gpu_hours, f.advice
FROM findings AS f
LEFT JOIN runs AS r USING (run_id)
WHERE $since IS NULL OR f.run_id IS NULL OR r.run_date >= $since
ORDER BY
    f.level, f.cost_gpu_hours DESC NULLS LAST, r.run_date DESC NULLS LAST, f.run_id, f.kind, f.subject
LIMIT $top
