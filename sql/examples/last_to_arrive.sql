-- Who comes last to collectives by its own fault, and how long do the others wait?
-- @topic stragglers
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `waited_ms` is what all other members waited for this rank. `own_waited_ms` is the part that the
-- rank caused itself: its time outside communication since its last step ended, beyond the median of the
-- other members. The rest it inherited: what it waited for came late. Groups over several stages and warm-up are
-- left out.

WITH starts AS (
    -- A rank that idles between two steps is late by itself.
    SELECT
        run_id, rank, step,
        least(min(start_ns), lag(max(end_ns)) OVER (PARTITION BY run_id, rank ORDER BY step))
            AS start_ns
    FROM ops
    WHERE contains(run_id, $run)
    GROUP BY run_id, rank, step
),
spans AS (
    -- The two lines of a fused send and receive are one span.
    SELECT
        *,
        CASE
            WHEN overlapped THEN 0
            WHEN start_ns = lag(start_ns) OVER in_order AND end_ns = lag(end_ns) OVER in_order
                THEN 0
            ELSE end_ns - start_ns
        END AS comm_ns
    FROM comms
    WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL AND contains(run_id, $run)
    WINDOW in_order AS (PARTITION BY run_id, rank, step ORDER BY start_ns, end_ns, seq, sub_seq)
),
synced AS (
    SELECT
        c.run_id,
        c.rank,
        c.seq,
        c.sub_seq,
        c.start_ns - s.start_ns - coalesce(sum(c.comm_ns) OVER (
            PARTITION BY c.run_id, c.rank, c.step ORDER BY c.start_ns, c.end_ns, c.seq, c.sub_seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS work_ns
    FROM spans AS c
    JOIN starts AS s USING (run_id, rank, step)
),
members AS (
    SELECT
        c.*,
        s.work_ns,
        min(c.stage) OVER call = max(c.stage) OVER call AS one_stage,
        median(s.work_ns) FILTER (c.rank <> c.last_rank) OVER call AS others_ns
    FROM collective_calls AS c
    JOIN step_stats AS t USING (run_id, step)
    LEFT JOIN synced AS s
        ON s.run_id = c.run_id AND s.rank = c.rank AND s.seq = c.seq
        AND s.sub_seq IS NOT DISTINCT FROM c.sub_seq
    WHERE c.skew_ms IS NOT NULL AND NOT t.warmup AND contains(c.run_id, $run)
    WINDOW call AS (PARTITION BY c.run_id, c.call)
),
calls AS (
    SELECT
        *,
        max(CASE WHEN rank = last_rank AND skew_ms > 0
            THEN least(1, greatest(0, (work_ns - others_ns) / 1e6 / skew_ms))
        END) OVER (PARTITION BY run_id, call) AS own_ratio
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
        sum((wait_ms * coalesce(own_ratio, 0))::DECIMAL(18, 6))::DOUBLE AS own_waited_ms,
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
    l.own_waited_ms,
    l.waited_ms,
    l.worst_skew_ms
FROM late AS l
JOIN taken AS t USING (run_id, group_kind, rank)
ORDER BY l.own_waited_ms DESC, l.waited_ms DESC, t.run_id, t.group_kind, t.rank
LIMIT $top
