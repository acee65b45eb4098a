-- Pieces as nodes of a graph: what each comes after, which end together, and how long each took.
-- Members of a matched call end together, sender and receiver of a message too, and the optimizer
-- where all ranks end it within a tick of the clock. A receive that began when its send had ended
-- comes after it instead.
-- @internal
-- @grain run_id, step, node
-- @column node INTEGER | Running number within the step, from 0.
-- @column kind VARCHAR | What is replayed together: the operation, or collective and group.
-- @column work UBIGINT | Nodes of a chunk with the same number do the same work.
-- @column replica INTEGER | Place of the rank within its stage, where ranks have several streams.
-- @column comm BOOLEAN | A communication: its ideal does not follow from other stages.
-- @column prev INTEGER | Node of the rank before it, where the rank has one stream.
-- @column sender INTEGER | Node that sent what it receives, where they do not end together.
-- @column after INTEGER[] | Nodes that end before it starts, where ranks have several streams.
-- @column group_1 INTEGER | First node of the group that it ends with; NULL outside of groups.
-- @column group_2 INTEGER | Likewise, of the send that is fused with a receive.
-- @column paper_group INTEGER | As group_1 where ranks have several streams, without the rule for such a receive.
-- @column end_ns BIGINT ns | End on the reference clock.
-- @column origin_ns BIGINT ns | First start of the step.
-- @column length_ns BIGINT ns | Time after the last member of its groups had started, at least 0.
-- @column raw_ns BIGINT ns | The same, 0 only where it is -10 ms or less: the rule of the published analysis.
-- @column delay_ns BIGINT ns | Start after the end of what it comes after.
WITH numbered AS (
    SELECT
        *,
        (row_number() OVER line - 1)::INTEGER AS node,
        replica IS NULL AND coalesce(rank = lag(rank) OVER line, false) AS follows,
        lag(to_ns) OVER line AS before_ns
    FROM _whatif_pieces
    WINDOW line AS (PARTITION BY run_id, step ORDER BY rank, from_ns, seq, piece)
),
origins AS (
    SELECT run_id, step, min(from_ns) AS origin_ns FROM _whatif_pieces GROUP BY run_id, step
),
categories AS (SELECT DISTINCT run_id, op FROM ops WHERE category = 'collective'),
places AS (
    SELECT run_id, rank, seq, stage, micro_batch, coalesce(chunk, 0) AS chunk
    FROM ops SEMI JOIN origins USING (run_id)
),
optimizers AS (
    SELECT DISTINCT o.run_id, o.op, coalesce(r.clock_tick_ns, 0) AS tick_ns
    FROM ops AS o JOIN runs AS r USING (run_id) WHERE o.kind = 'optimizer'
),
meetings AS (
    SELECT run_id, step, node, from_ns, to_ns, part, call, false AS second, NULL::BIGINT AS tick_ns
    FROM numbered WHERE call IS NOT NULL
    UNION ALL
    SELECT run_id, step, node, from_ns, to_ns, 'p2p_send', sent_call, true, NULL
    FROM numbered WHERE sent_call IS NOT NULL
    UNION ALL
    SELECT
        run_id, step, node, from_ns, to_ns, 'optimizer', hash(run_id, step, 'optimizer'), false, tick_ns
    FROM numbered JOIN optimizers USING (run_id, op) WHERE replica IS NULL
),
groups AS (
    SELECT
        call,
        min(node) AS lead,
        max(from_ns) AS latest_ns,
        CASE min(part)
            WHEN 'optimizer' THEN max(to_ns) - min(to_ns) <= min(tick_ns) AND count(*) > 1
            WHEN 'p2p_recv' THEN
                max(to_ns) FILTER (part = 'p2p_send') >= max(from_ns) FILTER (part = 'p2p_recv')
            ELSE true
        END AS together,
        CASE WHEN NOT together THEN max(node) FILTER (part = 'p2p_send') END AS sender,
        CASE WHEN NOT together THEN max(to_ns) FILTER (part = 'p2p_send') END AS sent_ns
    FROM meetings GROUP BY call
),
joined AS (
    SELECT
        m.run_id, m.step, m.node,
        min(g.lead) FILTER (g.together AND NOT m.second) AS group_1,
        min(g.lead) FILTER (g.together AND m.second) AS group_2,
        min(g.lead) AS paper_group,
        max(g.latest_ns) FILTER (g.together) AS latest_ns,
        max(g.latest_ns) AS paper_latest_ns,
        max(g.sender) FILTER (m.part = 'p2p_recv') AS sender,
        max(g.sent_ns) FILTER (m.part = 'p2p_recv') AS sent_ns
    FROM meetings AS m JOIN groups AS g USING (call)
    GROUP BY m.run_id, m.step, m.node
),
received AS (
    SELECT n.run_id, n.step, n.node, max(b.node) AS sender, any_value(m.ready_ns) AS sent_ns
    FROM numbered AS n JOIN _whatif_messages AS m USING (run_id, rank, seq)
    JOIN numbered AS b
        ON b.run_id = m.run_id AND b.rank = m.source_rank AND b.seq = m.source_seq
    WHERE n.part = 'message'
    GROUP BY n.run_id, n.step, n.node
),
edges AS (
    SELECT n.run_id, n.step, n.node, list(b.node ORDER BY b.node) AS after, max(b.to_ns) AS last_ns
    FROM _whatif_edges AS e JOIN numbered AS n USING (run_id, rank, seq)
    JOIN numbered AS b ON b.run_id = e.run_id AND b.rank = e.rank AND b.seq = e.after_seq
    GROUP BY n.run_id, n.step, n.node
)
SELECT
    n.run_id, n.step, n.node, n.rank, p.stage, p.chunk, p.micro_batch, n.replica, n.kind,
    hash(n.op, n.piece) AS work,
    n.part IN ('comm', 'message', 'p2p_send', 'p2p_recv') OR c.op IS NOT NULL AS comm,
    CASE WHEN n.follows THEN n.node - 1 END AS prev,
    coalesce(j.sender, r.sender) AS sender, e.after, j.group_1, j.group_2,
    CASE WHEN n.replica IS NOT NULL THEN j.paper_group END AS paper_group,
    n.to_ns AS end_ns, o.origin_ns,
    greatest(0, n.to_ns - greatest(n.from_ns, j.latest_ns)) AS length_ns,
    CASE
        WHEN n.to_ns - greatest(n.from_ns, CASE WHEN n.replica IS NULL THEN j.latest_ns ELSE j.paper_latest_ns END) > -10000000
            THEN n.to_ns - greatest(n.from_ns, CASE WHEN n.replica IS NULL THEN j.latest_ns ELSE j.paper_latest_ns END)
        ELSE 0
    END AS raw_ns,
    n.from_ns - coalesce(
        greatest(CASE WHEN n.follows THEN n.before_ns END, j.sent_ns, r.sent_ns, e.last_ns), o.origin_ns
    ) AS delay_ns
FROM numbered AS n
JOIN origins AS o USING (run_id, step)
JOIN places AS p USING (run_id, rank, seq)
LEFT JOIN categories AS c USING (run_id, op)
LEFT JOIN joined AS j USING (run_id, step, node)
LEFT JOIN received AS r USING (run_id, step, node)
LEFT JOIN edges AS e USING (run_id, step, node)
