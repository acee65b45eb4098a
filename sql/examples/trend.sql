-- Is it getting worse: how does the step time of each configuration move over its runs?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `first_ms` and `last_ms` are medians of the first and the last five runs of a configuration; of fewer
-- than ten runs, of the first and the last half. `drifted` is the verdict of its latest run against its
-- best stretch within 90 days.

WITH placed AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY config ORDER BY run_date, run_id) AS place,
        row_number() OVER (PARTITION BY config ORDER BY run_date DESC, run_id DESC) AS age,
        least(5, count(*) OVER (PARTITION BY config) // 2) AS few
    FROM run_history
    WHERE
        config IS NOT NULL AND run_date IS NOT NULL AND step_p50_ms IS NOT NULL AND reason IS DISTINCT FROM 'duplicate'
        AND ($since IS NULL OR run_date >= $since)
)
SELECT
    count(*) AS runs,
    min(run_date) AS since,
    max(run_date) AS until,
    median(step_p50_ms) FILTER (place <= few) AS first_ms,
    median(step_p50_ms) FILTER (age <= few) AS last_ms,
    last_ms / first_ms - 1 AS change_ratio,
    any_value(drift) FILTER (age = 1) AS drift,
    any_value(drifted_since) FILTER (age = 1) AS drifted_since,
    any_value(run_id) FILTER (age = 1) AS latest_run,
    config
FROM placed
GROUP BY config
HAVING count(*) >= 2
ORDER BY change_ratio DESC NULLS LAST, config
LIMIT $top
