-- Every run id is that of one run, and every run has a source.
-- @severity error
WITH seen AS (
    SELECT DISTINCT run_id FROM sources
    UNION SELECT DISTINCT run_id FROM faults
    UNION SELECT DISTINCT run_id FROM rejects
    UNION SELECT DISTINCT run_id FROM ops
    UNION SELECT DISTINCT run_id FROM comms
    UNION SELECT DISTINCT run_id FROM layer_times
    UNION SELECT DISTINCT run_id FROM train_steps
    UNION SELECT DISTINCT run_id FROM workload_passes
    UNION SELECT DISTINCT run_id FROM bandwidth_tests
    UNION SELECT DISTINCT run_id FROM timings
    UNION SELECT DISTINCT run_id FROM comm_ranks
),
known AS (
    SELECT run_id, count(*) AS times FROM runs GROUP BY run_id
),
sourced AS (
    SELECT DISTINCT run_id FROM sources
)
SELECT run_id, coalesce(k.times, 0) AS times, o.run_id IS NOT NULL AS has_source
FROM seen AS s
FULL JOIN known AS k USING (run_id)
LEFT JOIN sourced AS o USING (run_id)
WHERE k.times IS DISTINCT FROM 1 OR o.run_id IS NULL
