-- Spans of a rank's operations in the shared steps, each with the part at its beginning that only waits.
-- A call inside computing or data loading is a span beside that of its operation, which holds it.
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | 0 for the operation itself, else the call inside it.
-- @column op VARCHAR | Name of the operation; of a call collective and group, and `async`.
-- @column kind VARCHAR | compute, data, comm, overlap, p2p or optimizer.
-- @column holder VARCHAR | Of a call: the operation that it is inside of; else NULL.
-- @column holder_kind VARCHAR | Kind of that operation.
-- @column from_ns BIGINT ns | Start, where no earlier span of the rank has taken the time.
-- @column ready_ns BIGINT ns | End of waiting: the sender has started, or all members of the call have arrived. from_ns where the rank did not wait.
-- @column to_ns BIGINT ns | End.
WITH optimizers AS (
    SELECT i.run_id, i.step, i.op, max(i.from_ns) AS met_ns
    FROM _op_intervals AS i
    JOIN _shared_steps AS s USING (run_id, step)
    WHERE i.kind = 'optimizer' AND i.from_ns < i.to_ns
    GROUP BY i.run_id, i.step, i.op, s.open_ns
    HAVING max(i.to_ns) - min(i.to_ns) <= greatest(s.open_ns, meeting_ns(i.from_ns, i.to_ns))
),
own AS (
    SELECT
        i.run_id, i.step, i.rank, i.seq, i.op, i.kind, i.part, i.from_ns, i.to_ns,
        i.part IN ('compute', 'data') AS holds,
        -- The optimizer ends everywhere at once: it waits for the last rank to begin it.
        p.met_ns
    FROM _op_intervals AS i
    JOIN _shared_steps AS s USING (run_id, step)
    LEFT JOIN optimizers AS p USING (run_id, step, op)
    WHERE i.from_ns < i.to_ns
),
operations AS (
    SELECT
        o.run_id, o.step, o.rank, o.seq, 0 AS sub, o.op,
        CASE
            WHEN o.holds THEN o.part
            WHEN starts_with(o.part, 'p2p') THEN 'p2p'
            WHEN o.kind = 'optimizer' THEN 'optimizer'
            ELSE 'comm'
        END AS kind,
        o.from_ns,
        CASE
            WHEN o.holds THEN o.from_ns
            -- A receive whose sender was not seen is mostly waiting.
            WHEN o.part = 'p2p_recv' THEN coalesce(m.last_start_ns, o.to_ns)
            WHEN o.part = 'p2p_send' AND m.last_start_ns >= o.to_ns THEN o.from_ns
            ELSE coalesce(m.last_start_ns, o.met_ns, o.from_ns)
        END AS ready_ns,
        o.to_ns
    FROM own AS o
    LEFT JOIN _comm_matches AS m
        ON NOT o.holds AND m.run_id = o.run_id AND m.rank = o.rank AND m.seq = o.seq AND m.sub = 0
),
calls AS (
    SELECT
        o.run_id, o.step, o.rank, o.seq, m.sub,
        concat_ws(':', m.collective, m.group_kind, CASE WHEN m.overlapped THEN 'async' END)
            AS op,
        CASE WHEN m.overlapped THEN 'overlap' ELSE 'comm' END AS kind,
        o.op AS holder,
        o.part AS holder_kind,
        greatest(m.begin_ns, o.from_ns) AS clipped_start_ns,
        greatest(clipped_start_ns, max(least(m.finish_ns, o.to_ns)) OVER (
            PARTITION BY o.run_id, o.rank, o.seq ORDER BY m.begin_ns, m.finish_ns, m.sub
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )) AS from_ns,
        CASE
            WHEN m.overlapped THEN NULL
            -- Root and early members of these do not wait for the last one.
            WHEN m.collective IN ('broadcast', 'reduce') AND m.last_start_ns >= m.finish_ns THEN NULL
            ELSE m.last_start_ns
        END AS ready_ns,
        least(m.finish_ns, o.to_ns) AS to_ns
    FROM own AS o
    JOIN _comm_matches AS m ON m.run_id = o.run_id AND m.rank = o.rank AND m.seq = o.seq
    WHERE o.holds AND m.sub > 0 AND m.begin_ns IS NOT NULL AND m.finish_ns IS NOT NULL
),
spans AS (
    SELECT * FROM operations
    UNION ALL BY NAME
    SELECT * EXCLUDE (clipped_start_ns) FROM calls WHERE from_ns < to_ns
)
SELECT
    s.* EXCLUDE (ready_ns),
    least(s.to_ns, greatest(s.from_ns, s.ready_ns)) AS ready_ns,
    r.stage
FROM spans AS s
JOIN _rank_steps AS r USING (run_id, step, rank)
