-- Communication inside an operation: the union of its sub-operations, clipped to it; of an annotated pass what it waits for.
-- @grain run_id, rank, seq
-- @column comm_ns BIGINT ns | Union of the sub-operations.
-- @column async_ns BIGINT ns | What of it is asynchronous: time that contains a weight-gradient kernel.
-- @column window_comm_ns BIGINT ns | Its part inside the operation's interval and the step's window.
-- @column window_overlap_ns BIGINT ns | What of that is asynchronous: time that contains a weight-gradient kernel.
WITH inside AS (
    SELECT run_id, rank, seq, sub_seq, overlapped, start_ns, end_ns FROM comms WHERE sub_seq IS NOT NULL
    UNION ALL BY NAME
    SELECT *, false AS overlapped FROM _exposed_calls
),
calls AS (
    SELECT
        o.run_id, o.rank, o.step, o.seq, c.sub_seq, c.overlapped,
        -- Where a call counts for the window.
        greatest(o.from_ns, w.window_start_ns) AS low_ns,
        least(o.to_ns, w.window_end_ns) AS high_ns,
        aligned_ns(c.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
        aligned_ns(c.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns,
        greatest(begin_ns, o.start_ns) AS call_start_ns,
        least(finish_ns, o.end_ns) AS call_end_ns
    FROM inside AS c
    JOIN _op_intervals AS o USING (run_id, rank, seq)
    JOIN clock_offsets AS k USING (run_id, rank)
    JOIN _step_windows AS w ON w.run_id = o.run_id AND w.step = o.step
    WHERE o.part IN ('compute', 'data')
        AND c.start_ns IS NOT NULL AND c.end_ns IS NOT NULL
),
pieces AS (
    -- In order of start, a call counts from where the ones before it have ended.
    SELECT
        *,
        greatest(call_start_ns, max(call_end_ns) OVER (
            PARTITION BY run_id, rank, seq ORDER BY call_start_ns, call_end_ns, sub_seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )) AS piece_start_ns,
        clipped_ns(piece_start_ns, call_end_ns, low_ns, high_ns) AS window_piece_ns
    FROM calls
)
SELECT
    run_id,
    rank,
    step,
    seq,
    try_cast(sum(greatest(0, call_end_ns - piece_start_ns)) AS BIGINT) AS comm_ns,
    try_cast(coalesce(sum(greatest(0, call_end_ns - piece_start_ns)) FILTER (overlapped), 0) AS BIGINT) AS async_ns,
    try_cast(sum(window_piece_ns) AS BIGINT) AS window_comm_ns,
    try_cast(coalesce(sum(window_piece_ns) FILTER (overlapped), 0) AS BIGINT) AS window_overlap_ns
FROM pieces
GROUP BY run_id, rank, step, seq
