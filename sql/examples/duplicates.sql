-- Which files were there twice?
-- @topic input
-- @param top UBIGINT = 20 | Rows at most.
-- Each row is a copy and the file that it repeats. Models over all runs count the content once, so
-- nothing needs to be done; a copied folder says that somebody archived twice.

SELECT run_id, path, member, duplicate_of, bytes
FROM sources
WHERE duplicate_of IS NOT NULL
ORDER BY bytes DESC, run_id, path, member
LIMIT $top
