-- What a run is called: by run_id, label or hash, in every command. Commands resolve a name by this SELECT.
-- @scope fleet
-- @grain run_id
-- @column label VARCHAR | As in run_list.
-- @column hash VARCHAR | The 8 hex digits that end run_id; run_id where it has none, or where they also name another run.
WITH digits AS (
    SELECT
        run_id,
        coalesce(label, name, run_id) AS label,
        coalesce(nullif(regexp_extract(run_id, '-([0-9a-f]{8})$', 1), ''), run_id) AS hash
    FROM runs
),
names AS (
    -- What is compared with the name that a user gives.
    SELECT unnest(list_distinct([lower(run_id), lower(hash), lower(label)])) AS name
    FROM digits
),
shared AS (
    SELECT name
    FROM names
    GROUP BY name
    HAVING count(*) > 1
)
SELECT d.run_id, d.label, CASE WHEN s.name IS NULL THEN d.hash ELSE d.run_id END AS hash
FROM digits AS d
LEFT JOIN shared AS s ON s.name = lower(d.hash)
