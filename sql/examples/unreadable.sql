-- Which files could not be read, or only in part?
-- @topic input
-- @param top BIGINT = 20 | Rows at most.
-- Each row is a file with the reason: one that no format takes, one that cannot be opened, or one that
-- lost data while it was read. `next_step` says what to do about it.

SELECT concat_ws('/', path, member) AS file, NULL AS run_id, reason, 'see tracelake formats' AS next_step
FROM skipped
UNION ALL
SELECT subject, run_id, kind, advice
FROM findings
WHERE kind IN ('unreadable', 'data_lost', 'rejects', 'contradiction')
ORDER BY reason, file, run_id
LIMIT $top
