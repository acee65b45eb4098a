-- How much was read from each run?
-- @topic input
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Bytes and lines after decompression, and the rows that they became. Every line is a row line, a
-- context line, irrelevant or rejected; `irrelevant` much larger than the rest is a chatty log.

SELECT
    s.run_id,
    r.format,
    count(*) AS files,
    sum(s.bytes) / 1e6 AS megabytes,
    sum(s.lines)::BIGINT AS lines,
    sum(s.row_lines)::BIGINT AS row_lines,
    sum(s.context_lines)::BIGINT AS context_lines,
    sum(coalesce(list_sum(map_values(s.irrelevant)), 0))::BIGINT AS irrelevant,
    sum(s.rejected)::BIGINT AS rejected,
    sum(s.rows)::BIGINT AS "rows"
FROM sources AS s
JOIN runs AS r USING (run_id)
WHERE $since IS NULL OR r.run_date >= $since
GROUP BY s.run_id, r.format
ORDER BY megabytes DESC, s.run_id
LIMIT $top
