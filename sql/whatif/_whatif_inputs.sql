-- Nodes with their own lengths and the ideal ones: those of equal peers, of balanced stages, and the mean.
-- @internal
-- @grain run_id, step, node
-- @column node INTEGER | Running number within the step, from 0.
-- @column replica INTEGER | Place of the rank within its stage, where ranks have several streams.
-- @column kind VARCHAR | What is replayed together.
-- @column after INTEGER[] | Nodes that end before it starts.
-- @column group_1 INTEGER | First node of the group that it ends with; NULL outside of groups.
-- @column group_2 INTEGER | Likewise, of the send that is fused with a receive.
-- @column paper_after INTEGER[] | As after, where ranks have several streams, in the published analysis.
-- @column paper_group INTEGER | As group_1, likewise.
-- @column length_ns BIGINT ns | Own length.
-- @column delay_ns BIGINT ns | Start after the end of what it comes after.
-- @column peer_ns BIGINT ns | Median length of the stage's nodes that do the same work.
-- @column balanced_ns BIGINT ns | Of compute the mean of these medians over stages; else peer_ns.
-- @column raw_ns BIGINT ns | Own length by the rule of the published analysis.
-- @column mean_ns BIGINT ns | Its ideal: of compute the mean over stages and ranks, else the median.
WITH peers AS (
    SELECT
        run_id, stage, alike,
        round(quantile_cont(length_ns, 0.5))::BIGINT AS peer_ns
    FROM _whatif_nodes
    GROUP BY run_id, stage, alike
),
stages AS (
    SELECT run_id, alike, round(avg(peer_ns))::BIGINT AS balanced_ns
    FROM peers
    GROUP BY run_id, alike
),
means AS (
    SELECT
        run_id, alike,
        round(sum(raw_ns) / count(*))::BIGINT AS mean_ns,
        round(quantile_cont(raw_ns, 0.5))::BIGINT AS median_ns
    FROM _whatif_nodes
    GROUP BY run_id, alike
)
SELECT
    n.run_id, n.step, n.node, n.rank, n.stage, n.replica, n.kind, n.after, n.group_1, n.group_2, n.paper_after, n.paper_group,
    n.length_ns, n.delay_ns, p.peer_ns,
    CASE WHEN n.comm THEN p.peer_ns ELSE s.balanced_ns END AS balanced_ns,
    n.raw_ns,
    CASE WHEN n.comm THEN m.median_ns ELSE m.mean_ns END AS mean_ns
FROM _whatif_nodes AS n
JOIN peers AS p ON p.run_id = n.run_id AND p.stage IS NOT DISTINCT FROM n.stage AND p.alike = n.alike
JOIN stages AS s ON s.run_id = n.run_id AND s.alike = n.alike
JOIN means AS m ON m.run_id = n.run_id AND m.alike = n.alike
