-- Host and device of every rank with records; of a rank in several files, the last host by name.
-- @grain run_id, rank
WITH read_from AS (
    SELECT DISTINCT run_id, rank, source_id FROM ops
    UNION
    SELECT DISTINCT run_id, rank, source_id FROM layer_times
)
SELECT f.run_id, f.rank, s.host, s.device
FROM read_from AS f
LEFT JOIN sources AS s USING (run_id, source_id)
WHERE f.rank IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY f.run_id, f.rank ORDER BY s.host DESC NULLS LAST, s.device DESC NULLS LAST
) = 1
