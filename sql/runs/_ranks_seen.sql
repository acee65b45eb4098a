-- Ranks with at least one operation or layer time.
-- @grain run_id, rank
-- @column traced BOOLEAN | Seen in a rank trace.
SELECT run_id, rank, min(stage) AS stage, bool_or(traced) AS traced
FROM (
    SELECT DISTINCT run_id, rank, stage, true AS traced FROM ops
    UNION ALL
    SELECT DISTINCT run_id, rank, stage, false FROM layer_times
) AS seen
WHERE rank IS NOT NULL
GROUP BY run_id, rank
