-- Nodes with their own lengths and the ideal ones: those of equal peers, of balanced stages, and the mean.
-- @internal
-- @grain run_id, step, node
-- @column node INTEGER | Running number within the step, from 0.
-- @column replica INTEGER | Place of the rank within its stage, where ranks have several streams.
-- @column kind VARCHAR | What is replayed together.
-- @column prev INTEGER | Node of the rank before it, where the rank has one stream.
-- @column sender INTEGER | Node that sent what it receives, where they do not end together.
-- @column after INTEGER[] | Nodes that end before it starts, where ranks have several streams.
-- @column group_1 INTEGER | First node of the group that it ends with; NULL outside of groups.
-- @column group_2 INTEGER | Likewise, of the send that is fused with a receive.
-- @column paper_group INTEGER | As group_1 in the published analysis, where ranks have several streams.
-- @column length_ns BIGINT ns | Own length.
-- @column delay_ns BIGINT ns | Start after the end of what it comes after.
-- @column peer_ns BIGINT ns | Median length of the stage's nodes that do the same work.
-- @column balanced_ns BIGINT ns | Of compute the mean of these medians over stages; else peer_ns.
-- @column raw_ns BIGINT ns | Own length by the rule of the published analysis.
-- @column mean_ns BIGINT ns | Its ideal: of compute the mean over stages and ranks, else the median.
WITH peers AS (
    SELECT
        run_id, work, comm, stage, chunk,
        round(quantile_cont(length_ns, 0.5))::BIGINT AS peer_ns
    FROM _whatif_nodes
    GROUP BY run_id, work, comm, stage, chunk
),
means AS (
    SELECT
        run_id, work, comm,
        round(CASE WHEN comm THEN quantile_cont(raw_ns, 0.5) ELSE sum(raw_ns) / count(*) END)::BIGINT
            AS mean_ns
    FROM _whatif_nodes
    GROUP BY run_id, work, comm
),
ideals AS (
    SELECT
        p.* EXCLUDE (stage), coalesce(p.stage, -1) AS stage, m.mean_ns,
        CASE WHEN comm THEN p.peer_ns
            ELSE round(avg(p.peer_ns) OVER (PARTITION BY run_id, work, comm))::BIGINT
        END AS balanced_ns
    FROM peers AS p
    JOIN means AS m USING (run_id, work, comm)
)
SELECT
    n.run_id, n.step, n.node, n.rank, n.stage, n.replica, n.micro_batch, n.kind,
    n.prev, n.sender, n.after, n.group_1, n.group_2, n.paper_group,
    n.length_ns, n.delay_ns, i.peer_ns, i.balanced_ns, n.raw_ns, i.mean_ns
FROM _whatif_nodes AS n
JOIN ideals AS i
    ON i.run_id = n.run_id AND i.work = n.work AND i.comm = n.comm AND i.chunk = n.chunk
    AND i.stage = coalesce(n.stage, -1)
