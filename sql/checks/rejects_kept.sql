-- Every rejected line is in `rejects`.
-- @severity error
SELECT s.run_id, s.source_id, s.path, s.rejected, count(r.run_id) AS kept
FROM sources AS s
LEFT JOIN rejects AS r USING (run_id, source_id)
GROUP BY ALL
HAVING s.rejected IS DISTINCT FROM count(r.run_id)
