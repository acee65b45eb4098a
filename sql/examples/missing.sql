-- What cannot be computed from a run, and what would give it?
-- @topic input
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 50 | Rows at most.
-- A figure with its reason, and the option or file that would give it; NULL where nothing does.
-- `has_it` says whether no row of the run has the figure or only some have.

WITH listed AS (
    SELECT run_id, 'no row' AS has_it, unnest(not_computable) AS figure, unnest(hints) AS hint
    FROM coverage
    WHERE contains(run_id, $run)
    UNION ALL
    SELECT run_id, 'some rows', unnest(partly), unnest(partly_hints)
    FROM coverage
    WHERE contains(run_id, $run)
)
SELECT run_id, figure, has_it, hint
FROM listed
ORDER BY run_id, has_it, hint IS NULL, figure
LIMIT $top
