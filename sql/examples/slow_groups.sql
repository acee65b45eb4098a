-- Is a group of ranks slower in a collective than other groups doing the same?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `relative` is the group's median bus bandwidth over that of all groups with the same collective
-- and size. Calls under 0.1 ms are too short for the clock and left out, overlapped ones have no
-- bandwidth. Well below 1 in many calls: the ranks of that group share a slow link.

WITH calls AS (
    SELECT
        run_id,
        call,
        collective,
        group_kind,
        size_bytes,
        list(rank ORDER BY rank) AS ranks,
        max(busbw_gbps) AS gbps
    FROM collective_calls
    WHERE
        matched
        AND busbw_gbps IS NOT NULL
        AND time_ms >= 0.1
        AND collective NOT IN ('send', 'recv')
        AND contains(run_id, $run)
    GROUP BY run_id, call, collective, group_kind, size_bytes
),
groups AS (
    SELECT * EXCLUDE (call, gbps), count(*) AS calls, median(gbps) AS p50_gbps
    FROM calls
    GROUP BY ALL
)
SELECT
    *,
    p50_gbps / median(p50_gbps) OVER (
        PARTITION BY run_id, collective, group_kind, size_bytes
    ) AS relative
FROM groups
ORDER BY relative, run_id, collective, group_kind, size_bytes, ranks
LIMIT $top
