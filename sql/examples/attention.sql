-- What needs attention tonight?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param top BIGINT = 50 | Rows at most.
-- Each row is one finding of one run, the gravest kind first; no row means that nothing was found.
-- `regressions`, `slow_ranks`, `missing` and `bad_lines` say more about each kind.

WITH chosen AS (
    SELECT *
    FROM runs
    WHERE $since IS NULL OR run_date >= $since
),
findings AS (
    SELECT run_id, 1 AS gravity, 'regressed' AS finding, unnest(regressions) AS detail
    FROM run_history
    WHERE verdict = 'regressed'
    UNION ALL
    SELECT last_slow_run, 2, 'recurring', evidence
    FROM straggler_history
    WHERE verdict = 'recurring'
    UNION ALL
    SELECT run_id, 3, verdict, evidence
    FROM straggler_ranks
    WHERE verdict = 'straggler'
    UNION ALL
    SELECT run_id, 4, verdict, evidence
    FROM straggler_ranks
    WHERE verdict = 'suspect'
    UNION ALL
    SELECT run_id, 5, 'data loss', concat(name, ', ', sum(count), ' times')
    FROM faults
    WHERE severity IN ('data_loss', 'error')
    GROUP BY run_id, name
    UNION ALL
    SELECT
        run_id,
        6,
        'incomplete',
        CASE
            WHEN ranks_seen < ranks_expected
                THEN format('{} of {} ranks', ranks_seen, ranks_expected)
            ELSE 'cut, or it does not say how many ranks to expect'
        END
    FROM chosen
    WHERE NOT complete AND NOT coalesce(simulated, false)
    UNION ALL
    SELECT run_id, 7, 'rejects', concat(sum(rejected), ' lines not understood')
    FROM sources
    GROUP BY run_id
    HAVING sum(rejected) > 0
)
SELECT finding, run_id, run_date, detail
FROM findings
JOIN chosen USING (run_id)
ORDER BY gravity, run_date DESC NULLS LAST, run_id, detail
LIMIT $top
