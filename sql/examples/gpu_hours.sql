-- How many GPU hours did slow ranks cost, per configuration?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- `lost_ratio` is the part of the measured steps that the job waited for its slowest rank: a bound
-- from above. `compared` counts the runs whose ranks could be compared; the others say nothing.
-- Copies of runs are left out.

WITH stepped AS (
    SELECT run_id, sum(step_ms) AS step_ms
    FROM step_stats
    WHERE NOT warmup
    GROUP BY run_id
)
SELECT
    r.config,
    count(*) AS runs,
    count(s.time_lost_ms) AS compared,
    count(*) FILTER (s.stragglers > 0 OR s.suspects > 0) AS runs_with_slow_ranks,
    sum(s.gpu_hours_lost) AS gpu_hours_lost,
    sum(s.gpu_hours_lost) / nullif(
        sum(r.world_size * t.step_ms / 3.6e6) FILTER (s.gpu_hours_lost IS NOT NULL), 0
    ) AS lost_ratio
FROM runs AS r
JOIN run_summary AS s USING (run_id)
JOIN run_history AS h USING (run_id)
JOIN stepped AS t USING (run_id)
WHERE h.reason IS DISTINCT FROM 'duplicate' AND ($since IS NULL OR r.run_date >= $since)
GROUP BY r.config
HAVING count(s.time_lost_ms) > 0
ORDER BY gpu_hours_lost DESC NULLS LAST, r.config
