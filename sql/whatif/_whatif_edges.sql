-- What an operation comes after in runs whose ranks have several streams: from the order of a stream, and from data.
-- The first receive and send of gradients come after the pass two before the first backward pass.
-- @grain run_id, rank, seq, after_seq
-- @column after_seq BIGINT | Operation of the same rank and step that ends before it starts.
WITH placed AS (
    SELECT
        *,
        lag(op) OVER line AS prev_op,
        lag(number) OVER line AS prev_number,
        bool_or(op = 'separate_grads_all_reduce') OVER (PARTITION BY run_id) AS overlapped
    FROM _whatif_template
    WINDOW line AS (PARTITION BY run_id, stage, stream ORDER BY place)
),
passes AS (
    SELECT run_id, stage, op, direction, number, place, chunk FROM placed WHERE stream = 'compute'
),
messages AS (SELECT * FROM placed WHERE direction IS NOT NULL AND stream <> 'compute'),
chunks AS (
    SELECT
        run_id, stage, chunk,
        max(number) FILTER (op = 'backward_step') AS last_backward,
        min(number) FILTER (op = 'forward_step') AS first_forward,
        max(number) FILTER (op = 'params_all_gather') AS last_gather
    FROM placed
    GROUP BY run_id, stage, chunk
),
lasts AS (
    SELECT
        run_id, stage,
        arg_max(op, place) FILTER (stream = 'compute') AS last_op,
        arg_max(number, place) FILTER (stream = 'compute') AS last_number,
        max(number) FILTER (op = 'grads_reduce_scatter') AS last_scatter
    FROM placed
    GROUP BY run_id, stage
),
-- Operations that follow the passes, in their order.
tail AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY run_id, stage ORDER BY step_of_tail, number) AS rung,
        lag(op) OVER (PARTITION BY run_id, stage ORDER BY step_of_tail, number) AS before_op,
        lag(number) OVER (PARTITION BY run_id, stage ORDER BY step_of_tail, number) AS before_number,
        min(CASE WHEN step_of_tail > 1 THEN step_of_tail END) OVER (PARTITION BY run_id, stage) AS first_call
    FROM (
        SELECT
            run_id, stage, op, number, overlapped,
            list_position([
                'gc', 'layernorm_grads_all_reduce', 'ep_allreduce', 'grads_reduce_scatter',
                'separate_grads_all_reduce', 'optimizer_clip', 'optimizer_step'
            ], op) AS step_of_tail
        FROM placed
        WHERE stream = 'end' OR (op = 'grads_reduce_scatter' AND NOT overlapped)
    ) AS ending
),
pairs AS (
    SELECT run_id, stage, op, number, prev_op AS after_op, prev_number AS after_number
    FROM placed WHERE stream <> 'end'
    UNION
    -- A pass comes after what it receives, a receive after the pass before, a send after its pass.
    SELECT m.run_id, m.stage, p.op, p.number, m.op, m.number
    FROM messages AS m
    JOIN passes AS p ON p.run_id = m.run_id AND p.stage = m.stage AND p.direction = m.direction
        AND p.number = m.pass_number
    WHERE starts_with(m.op, 'recv')
    UNION
    SELECT m.run_id, m.stage, m.op, m.number, p.op, p.number
    FROM messages AS m
    JOIN passes AS p ON p.run_id = m.run_id AND p.stage = m.stage AND p.direction = m.direction
        AND p.number = m.pass_number - starts_with(m.op, 'recv')::INTEGER
    UNION
    SELECT m.run_id, m.stage, m.op, m.number, p.op, p.number
    FROM messages AS m
    JOIN passes AS b
        ON b.run_id = m.run_id AND b.stage = m.stage AND b.op = 'backward_step' AND b.number = 1
    JOIN passes AS p ON p.run_id = b.run_id AND p.stage = b.stage AND p.place = b.place - 2
    WHERE m.direction = 'backward' AND m.number = 1
    UNION
    SELECT run_id, stage, 'forward_step', first_forward, 'params_all_gather', last_gather FROM chunks
    UNION
    SELECT t.run_id, t.stage, t.op, t.number, coalesce(t.before_op, l.last_op), coalesce(t.before_number, l.last_number)
    FROM tail AS t
    JOIN lasts AS l USING (run_id, stage)
    UNION
    -- Where gradients are reduced beside the passes, the tail comes after the last of them.
    SELECT t.run_id, t.stage, t.op, t.number, 'grads_reduce_scatter', l.last_scatter
    FROM tail AS t
    JOIN lasts AS l USING (run_id, stage)
    WHERE t.overlapped AND t.step_of_tail = t.first_call
    UNION
    SELECT p.run_id, p.stage, p.op, p.number, 'backward_step', c.last_backward
    FROM placed AS p
    JOIN chunks AS c USING (run_id, stage, chunk)
    WHERE p.overlapped AND p.op = 'grads_reduce_scatter'
)
SELECT o.run_id, o.step, o.rank, o.seq, b.seq AS after_seq
FROM pairs AS e
JOIN _whatif_streams AS o USING (run_id, stage, op, number)
JOIN _whatif_scope AS s USING (run_id)
JOIN _whatif_streams AS b
    ON b.run_id = o.run_id AND b.rank = o.rank AND b.step = o.step
    AND b.op = e.after_op AND b.number = e.after_number
WHERE s.reason IS NULL
