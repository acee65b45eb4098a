-- Runs all of whose files are copies of those of other runs, and the run that each repeats.
-- @scope fleet
-- @grain run_id
-- @column copy_of VARCHAR | The run with the original of its first file.
WITH copies AS (
    SELECT run_id, arg_min(content_hash, source_id) AS content_hash
    FROM sources
    GROUP BY run_id
    HAVING bool_and(duplicate_of IS NOT NULL)
)
SELECT c.run_id, min(o.run_id) AS copy_of
FROM copies AS c
LEFT JOIN sources AS o ON o.content_hash = c.content_hash AND o.duplicate_of IS NULL
GROUP BY c.run_id
