-- How steady are the steps of a run?
-- @topic steps
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Warm-up is left out. A p95 far above the median with few outliers is a regular event, such as a
-- checkpoint; many outliers are noise from outside: see `worst_steps`.

SELECT
    s.run_id,
    count(*) AS steps,
    median(s.step_ms) AS p50_ms,
    quantile_cont(s.step_ms, 0.95) AS p95_ms,
    max(s.step_ms) AS max_ms,
    stddev_samp(s.step_ms) / avg(s.step_ms) AS cv_ratio,
    count(*) FILTER (s.outlier) AS outliers
FROM step_stats AS s
JOIN runs AS r USING (run_id)
WHERE NOT s.warmup AND s.step_ms IS NOT NULL AND ($since IS NULL OR r.run_date >= $since)
GROUP BY s.run_id
ORDER BY cv_ratio DESC NULLS LAST, s.run_id
LIMIT $top
