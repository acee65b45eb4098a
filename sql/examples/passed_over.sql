-- Which inputs were passed over, and why?
-- @topic input
-- @param top UBIGINT = 20 | Rows at most.
-- A file that no format takes is listed here and nowhere else. `no_format` where there should be
-- one: see `tracelake formats`, or force one with `--input-format`.

SELECT reason, path, member
FROM skipped
ORDER BY reason, path, member
LIMIT $top
