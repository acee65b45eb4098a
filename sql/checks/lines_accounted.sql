-- Every line of a file is a row line, a context line, irrelevant or rejected.
-- @severity error
SELECT run_id, source_id, path, lines, row_lines, context_lines, irrelevant, rejected
FROM sources
WHERE lines IS DISTINCT FROM
    row_lines + context_lines + rejected + coalesce(list_sum(map_values(irrelevant)), 0)
