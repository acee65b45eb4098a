-- Parts of the window that the rank's own operations of the step fill.
-- @grain run_id, step, rank
-- @column compute_ns BIGINT ns | Computing operations outside their communication.
-- @column data_ns BIGINT ns | Data loading operations outside their communication.
-- @column in_op_comm_ns BIGINT ns | Communication inside both.
-- @column in_op_overlap_ns BIGINT ns | What of that is asynchronous.
-- @column p2p_recv_ns BIGINT ns | Receives.
-- @column p2p_send_ns BIGINT ns | Sends.
-- @column finalize_ns BIGINT ns | Gradient and embedding all-reduces, optimizer.
WITH pieces AS (
    SELECT
        i.run_id,
        i.step,
        i.rank,
        i.part,
        clipped_ns(i.from_ns, i.to_ns, w.window_start_ns, w.window_end_ns) AS piece_ns,
        coalesce(c.window_comm_ns, 0) AS comm_ns,
        coalesce(c.window_overlap_ns, 0) AS overlap_ns
    FROM _op_intervals AS i
    JOIN _step_windows AS w USING (run_id, step)
    LEFT JOIN _op_comm AS c ON c.run_id = i.run_id AND c.rank = i.rank AND c.seq = i.seq
    WHERE w.reason IS NULL
)
SELECT
    run_id,
    step,
    rank,
    try_cast(coalesce(sum(piece_ns - comm_ns) FILTER (part = 'compute'), 0) AS BIGINT) AS compute_ns,
    try_cast(coalesce(sum(piece_ns - comm_ns) FILTER (part = 'data'), 0) AS BIGINT) AS data_ns,
    try_cast(sum(comm_ns) AS BIGINT) AS in_op_comm_ns,
    try_cast(sum(overlap_ns) AS BIGINT) AS in_op_overlap_ns,
    try_cast(coalesce(sum(piece_ns) FILTER (part = 'p2p_recv'), 0) AS BIGINT) AS p2p_recv_ns,
    try_cast(coalesce(sum(piece_ns) FILTER (part = 'p2p_send'), 0) AS BIGINT) AS p2p_send_ns,
    try_cast(coalesce(sum(piece_ns) FILTER (part = 'finalize'), 0) AS BIGINT) AS finalize_ns
FROM pieces
GROUP BY run_id, step, rank
