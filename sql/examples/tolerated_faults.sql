-- What was wrong with the files, though they were read?
-- @topic input
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `data_loss` and `error` first: data is missing, or figures are wrong. docs/reference.md says what
-- each fault means and what to do.

SELECT f.run_id, s.path, s.member, f.name, f.severity, f.count, f.line AS first_line
FROM faults AS f
JOIN sources AS s USING (run_id, source_id)
WHERE contains(f.run_id, $run)
ORDER BY
    list_position(['error', 'data_loss', 'incomplete', 'notice', 'info'], f.severity),
    f.count DESC,
    f.run_id,
    s.path,
    s.member,
    f.name
LIMIT $top
