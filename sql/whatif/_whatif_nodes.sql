-- Pieces as nodes of a graph: what each comes after, which end together, and how long each took.
-- Members of a matched call end together, sender and receiver of a message too, and the optimizer
-- where all ranks end it within a tick of the clock. A receive that began when its send had ended
-- comes after it instead.
-- @internal
-- @grain run_id, step, node
-- @column node INTEGER | Running number within the step, from 0.
-- @column kind VARCHAR | What is replayed together: the operation, or collective and group.
-- @column alike VARCHAR | Nodes of a stage with the same text do the same work.
-- @column replica INTEGER | Place of the rank within its stage, where ranks have several streams.
-- @column comm BOOLEAN | A communication: its ideal does not follow from other stages.
-- @column after INTEGER[] | Nodes that end before it starts.
-- @column group_1 INTEGER | First node of the group that it ends with; NULL outside of groups.
-- @column group_2 INTEGER | Likewise, of the send that is fused with a receive.
-- @column paper_after INTEGER[] | As after, where ranks have several streams, without the rule for such a receive.
-- @column paper_group INTEGER | As group_1, likewise.
-- @column start_ns BIGINT ns | Start on the reference clock.
-- @column end_ns BIGINT ns | End, likewise.
-- @column origin_ns BIGINT ns | First start of the step.
-- @column length_ns BIGINT ns | Time after the last member of its groups had started, at least 0.
-- @column raw_ns BIGINT ns | The same, 0 only where it is -10 ms or less: the rule of the published analysis.
-- @column delay_ns BIGINT ns | Start after the end of what it comes after.
WITH numbered AS (
    SELECT
        p.* EXCLUDE (from_ns, to_ns),
        p.from_ns AS start_ns,
        p.to_ns AS end_ns,
        o.stage,
        o.stream,
        o.kind = 'optimizer' AND o.stream IS NULL AS optimizes,
        r.replica,
        p.part IN ('comm', 'p2p_send', 'p2p_recv') OR o.category = 'collective' AS comm,
        (row_number() OVER (
            PARTITION BY p.run_id, p.step ORDER BY p.rank, p.from_ns, p.seq, p.piece
        ) - 1)::INTEGER AS node,
        min(p.from_ns) OVER (PARTITION BY p.run_id, p.step) AS origin_ns
    FROM _whatif_pieces AS p
    JOIN ops AS o USING (run_id, rank, seq)
    LEFT JOIN _whatif_streams AS r USING (run_id, rank, seq)
),
meetings AS (
    SELECT run_id, step, node, start_ns, end_ns, part, call, 1 AS side
    FROM numbered WHERE call IS NOT NULL
    UNION ALL
    SELECT run_id, step, node, start_ns, end_ns, 'p2p_send', sent_call, 2
    FROM numbered WHERE sent_call IS NOT NULL
    UNION ALL
    SELECT run_id, step, node, start_ns, end_ns, 'optimizer', 'optimizer', 1
    FROM numbered WHERE optimizes
),
groups AS (
    SELECT
        m.run_id, m.step, m.call,
        min(node) AS lead,
        max(start_ns) AS latest_ns,
        CASE min(part)
            WHEN 'optimizer' THEN max(end_ns) - min(end_ns) <= min(coalesce(r.clock_tick_ns, 0))
                    AND count(*) > 1
            WHEN 'p2p_recv' THEN
                max(end_ns) FILTER (part = 'p2p_send') >= max(start_ns) FILTER (part = 'p2p_recv')
            ELSE true
        END AS together,
        max(node) FILTER (part = 'p2p_send') AS sender
    FROM meetings AS m
    JOIN runs AS r USING (run_id)
    GROUP BY m.run_id, m.step, m.call
),
joined AS (
    SELECT
        m.run_id, m.step, m.node,
        min(g.lead) FILTER (g.together AND m.side = 1) AS group_1,
        min(g.lead) FILTER (g.together AND m.side = 2) AS group_2,
        max(g.latest_ns) FILTER (g.together) AS latest_ns,
        min(g.lead) AS paper_group,
        max(g.latest_ns) AS raw_latest_ns,
        max(g.sender) FILTER (NOT g.together AND m.part = 'p2p_recv') AS sender
    FROM meetings AS m
    JOIN groups AS g USING (run_id, step, call)
    GROUP BY m.run_id, m.step, m.node
),
edges AS (
    SELECT n.run_id, n.step, n.node, list(b.node ORDER BY b.node) AS nodes, max(b.end_ns) AS last_end_ns
    FROM _whatif_edges AS e
    JOIN numbered AS n USING (run_id, rank, seq)
    JOIN numbered AS b
        ON b.run_id = e.run_id AND b.rank = e.rank AND b.step = n.step AND b.seq = e.after_seq
    GROUP BY n.run_id, n.step, n.node
),
chained AS (
    SELECT
        n.*, j.group_1, j.group_2, j.latest_ns, j.sender, j.paper_group,
        CASE WHEN n.stream IS NULL THEN j.latest_ns ELSE j.raw_latest_ns END AS raw_latest_ns,
        s.end_ns AS sent_ns,
        CASE WHEN n.stream IS NULL THEN lag(n.node) OVER line END AS prev,
        CASE WHEN n.stream IS NULL THEN lag(n.end_ns) OVER line END AS prev_end_ns,
        e.nodes, e.last_end_ns
    FROM numbered AS n
    LEFT JOIN joined AS j USING (run_id, step, node)
    LEFT JOIN numbered AS s ON s.run_id = n.run_id AND s.step = n.step AND s.node = j.sender
    LEFT JOIN edges AS e USING (run_id, step, node)
    WINDOW line AS (PARTITION BY n.run_id, n.step, n.rank ORDER BY n.node)
)
SELECT
    run_id, step, node, rank, stage, replica, kind,
    concat(op, '#', piece) AS alike,
    comm,
    CASE
        WHEN nodes IS NULL AND sender IS NULL AND prev IS NOT NULL THEN [prev]
        ELSE list_concat(coalesce(nodes, []), list_filter([prev, sender], lambda n: n IS NOT NULL))
    END AS after,
    group_1, group_2,
    CASE WHEN stream IS NOT NULL THEN coalesce(nodes, []) END AS paper_after,
    CASE WHEN stream IS NOT NULL THEN paper_group END AS paper_group,
    start_ns, end_ns, origin_ns,
    greatest(0, end_ns - greatest(start_ns, latest_ns)) AS length_ns,
    CASE
        WHEN end_ns - greatest(start_ns, raw_latest_ns) > -10000000
            THEN end_ns - greatest(start_ns, raw_latest_ns)
        ELSE 0
    END AS raw_ns,
    start_ns - coalesce(greatest(prev_end_ns, sent_ns, last_end_ns), origin_ns) AS delay_ns
FROM chained
