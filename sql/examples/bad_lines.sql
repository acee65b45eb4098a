-- Which lines were not understood?
-- @topic input
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- A row is a reason in a file, with the first of its lines. `tracelake formats NAME` says what each
-- reason means; all lines are in `rejects`.

SELECT
    s.run_id,
    s.path,
    s.member,
    r.reason,
    count(*) AS lines,
    min(r.line) AS first_line,
    left(min_by(r.text, r.line), 60) AS first_text
FROM rejects AS r
JOIN sources AS s USING (run_id, source_id)
WHERE contains(r.run_id, $run)
GROUP BY s.run_id, s.path, s.member, r.reason
ORDER BY count(*) DESC, s.run_id, s.path, s.member, r.reason
LIMIT $top
