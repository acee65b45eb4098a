-- A file has as many rows stored as its account says.
-- @severity error
WITH stored AS (
    SELECT run_id, source_id, count(*) AS stored
    FROM (
        SELECT run_id, source_id FROM ops
        UNION ALL SELECT run_id, source_id FROM comms
        UNION ALL SELECT run_id, source_id FROM layer_times
        UNION ALL SELECT run_id, source_id FROM train_steps
        UNION ALL SELECT run_id, source_id FROM workload_passes
        UNION ALL SELECT run_id, source_id FROM bandwidth_tests
        UNION ALL SELECT run_id, source_id FROM timings
        UNION ALL SELECT run_id, source_id FROM comm_ranks
    ) AS records
    GROUP BY run_id, source_id
)
SELECT run_id, source_id, s.path, s.rows, coalesce(t.stored, 0) AS stored
FROM sources AS s
FULL JOIN stored AS t USING (run_id, source_id)
WHERE s.rows IS DISTINCT FROM coalesce(t.stored, 0)
