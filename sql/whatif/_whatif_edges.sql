-- What an operation comes after in runs whose ranks have several streams: from the order of a stream, and from data.
-- The first receive and send of gradients come after the pass two before the first backward pass.
-- @internal
-- @grain run_id, rank, seq, after_seq
-- @column after_seq BIGINT | Operation of the same rank and step that ends before it starts.
WITH placed AS (
    SELECT
        o.run_id, o.rank, o.step, o.seq, o.op, o.stream, coalesce(o.chunk, 0) AS chunk,
        CASE WHEN o.op IN ('forward_step', 'recv_forward', 'send_forward') THEN 'forward'
            WHEN o.op IN ('backward_step', 'recv_backward', 'send_backward') THEN 'backward'
        END AS direction,
        row_number() OVER (PARTITION BY o.run_id, o.rank, o.step, o.op ORDER BY o.seq) AS number,
        row_number() OVER (PARTITION BY o.run_id, o.rank, o.step, o.stream ORDER BY o.seq) AS place,
        lag(o.seq) OVER (PARTITION BY o.run_id, o.rank, o.step, o.stream ORDER BY o.seq) AS prev,
        count(*) FILTER (o.op = 'separate_grads_all_reduce') OVER (
            PARTITION BY o.run_id, o.rank, o.step
        ) > 0 AS overlapped
    FROM ops AS o
    JOIN _whatif_scope AS s USING (run_id)
    JOIN step_stats AS t ON t.run_id = o.run_id AND t.step = o.step
    WHERE s.reason IS NULL AND NOT t.warmup AND o.stream IS NOT NULL
),
passes AS (
    SELECT *, lag(seq) OVER (PARTITION BY run_id, rank, step, op ORDER BY seq) AS prev_pass
    FROM placed
    WHERE stream = 'compute'
),
firsts AS (
    SELECT b.run_id, b.rank, b.step, b.seq AS backward, p.seq AS before
    FROM passes AS b
    JOIN passes AS p
        ON p.run_id = b.run_id AND p.rank = b.rank AND p.step = b.step AND p.place = b.place - 2
    WHERE b.op = 'backward_step' AND b.number = 1
),
ends AS (
    SELECT
        run_id, rank, step, chunk,
        max(seq) FILTER (stream = 'compute') AS last_pass,
        max(seq) FILTER (op = 'backward_step') AS last_backward,
        min(seq) FILTER (op = 'forward_step') AS first_forward,
        max(seq) FILTER (op = 'params_all_gather') AS last_gather,
        max(seq) FILTER (op = 'grads_reduce_scatter') AS last_scatter
    FROM placed
    GROUP BY ALL
),
steps AS (
    SELECT run_id, rank, step, max(last_pass) AS last_pass, max(last_scatter) AS last_scatter
    FROM ends
    GROUP BY ALL
),
-- Operations that follow the passes, in their order.
tail AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY run_id, rank, step
            ORDER BY list_position([
                'gc', 'layernorm_grads_all_reduce', 'ep_allreduce', 'grads_reduce_scatter',
                'separate_grads_all_reduce', 'optimizer_clip', 'optimizer_step'
            ], op), seq
        ) AS rung
    FROM placed
    WHERE stream = 'end' OR (op = 'grads_reduce_scatter' AND NOT overlapped)
),
edges AS (
    SELECT run_id, rank, seq, prev AS after_seq FROM placed WHERE stream <> 'end'
    UNION
    SELECT m.run_id, m.rank, m.seq, unnest([p.prev_pass, CASE WHEN m.number = 1 AND m.direction = 'backward' THEN f.before END])
    FROM placed AS m
    JOIN passes AS p
        ON p.run_id = m.run_id AND p.rank = m.rank AND p.step = m.step
        AND p.direction = m.direction AND p.number = m.number
    LEFT JOIN firsts AS f ON f.run_id = m.run_id AND f.rank = m.rank AND f.step = m.step
    WHERE starts_with(m.op, 'recv')
    UNION
    SELECT p.run_id, p.rank, p.seq, m.seq
    FROM placed AS m
    JOIN passes AS p
        ON p.run_id = m.run_id AND p.rank = m.rank AND p.step = m.step
        AND p.direction = m.direction AND p.number = m.number
    WHERE starts_with(m.op, 'recv')
    UNION
    SELECT m.run_id, m.rank, m.seq, p.seq
    FROM placed AS m
    JOIN passes AS p
        ON p.run_id = m.run_id AND p.rank = m.rank AND p.step = m.step
        AND p.direction = m.direction AND p.number = m.number
    WHERE starts_with(m.op, 'send')
    UNION
    SELECT run_id, rank, first_forward, last_gather FROM ends WHERE first_forward IS NOT NULL
    UNION
    SELECT t.run_id, t.rank, t.seq, coalesce(b.seq, CASE WHEN t.rung = 1 THEN s.last_pass END)
    FROM tail AS t
    JOIN steps AS s ON s.run_id = t.run_id AND s.rank = t.rank AND s.step = t.step
    LEFT JOIN tail AS b
        ON b.run_id = t.run_id AND b.rank = t.rank AND b.step = t.step AND b.rung = t.rung - 1
    UNION
    SELECT p.run_id, p.rank, p.seq, CASE p.op
            WHEN 'grads_reduce_scatter' THEN e.last_backward ELSE s.last_scatter
        END
    FROM placed AS p
    JOIN ends AS e
        ON e.run_id = p.run_id AND e.rank = p.rank AND e.step = p.step AND e.chunk = p.chunk
    JOIN steps AS s ON s.run_id = p.run_id AND s.rank = p.rank AND s.step = p.step
    WHERE p.overlapped AND p.op IN ('grads_reduce_scatter', 'layernorm_grads_all_reduce')
)
SELECT run_id, rank, seq, after_seq
FROM edges
WHERE after_seq IS NOT NULL
