-- What could not be computed of a run, why, and what would give it.
-- A figure that only some rows lack is listed where something would give it. Of several reasons the
-- most frequent one is given, those with a remedy first.
-- @grain run_id, figure
-- @column figure VARCHAR | Model and column.
-- @column whole BOOLEAN | No row of the run has the figure.
-- @column times BIGINT rows | Rows that lack it for this reason.
-- @column out_of BIGINT rows | Rows that could have it.
-- @column remedy VARCHAR | What would give it; NULL where nothing would.
WITH totals AS (
    SELECT run_id, figure, sum(times)::BIGINT AS out_of, bool_and(missing) AS whole
    FROM _figure_rows
    GROUP BY run_id, figure
)
SELECT f.run_id, f.figure, f.reason, t.whole, f.times, t.out_of, r.remedy
FROM _figure_rows AS f
JOIN totals AS t USING (run_id, figure)
LEFT JOIN _remedies AS r USING (run_id, reason)
WHERE f.missing AND (t.whole OR (r.remedy IS NOT NULL AND r.partly))
QUALIFY row_number() OVER (
    PARTITION BY f.run_id, f.figure ORDER BY r.remedy IS NULL, f.times DESC, f.reason
) = 1
