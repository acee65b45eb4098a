-- Who comes last to collectives, and how long do the others wait?
-- @topic stragglers
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top BIGINT = 20 | Rows at most.
-- `waited_ms` is what all other members waited for this rank; see `slow_ranks` for why. Groups over
-- several stages are left out, for the schedule decides who comes last there, and so is warm-up.

WITH members AS (
    SELECT
        c.*,
        min(c.stage) OVER (PARTITION BY c.run_id, c.call)
        = max(c.stage) OVER (PARTITION BY c.run_id, c.call) AS one_stage
    FROM collective_calls AS c
    JOIN step_stats AS s USING (run_id, step)
    WHERE c.skew_ms IS NOT NULL AND NOT s.warmup AND contains(c.run_id, $run)
),
calls AS (
    SELECT *
    FROM members
    WHERE one_stage AND collective NOT IN ('send', 'recv')
),
taken AS (
    SELECT run_id, group_kind, rank, count(*) AS calls, max(group_size) AS group_size
    FROM calls
    GROUP BY ALL
),
late AS (
    SELECT
        run_id,
        group_kind,
        last_rank AS rank,
        count(DISTINCT call) AS last_calls,
        sum(wait_ms::DECIMAL(18, 6))::DOUBLE AS waited_ms,
        max(skew_ms) AS worst_skew_ms
    FROM calls
    WHERE last_rank IS NOT NULL
    GROUP BY ALL
)
SELECT
    t.run_id,
    t.group_kind,
    t.rank,
    t.calls,
    t.group_size,
    l.last_calls / t.calls AS last_ratio,
    l.waited_ms,
    l.worst_skew_ms
FROM late AS l
JOIN taken AS t USING (run_id, group_kind, rank)
ORDER BY l.waited_ms DESC, t.run_id, t.group_kind, t.rank
LIMIT $top
