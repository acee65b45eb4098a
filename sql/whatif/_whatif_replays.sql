-- How long every step takes when it is replayed: with its own lengths, with ideal ones, with one rank, stage or kind apart.
-- @internal
-- @kernel replay
-- @grain run_id, step, scenario, subject
-- @column run_id VARCHAR | Run that the step belongs to.
-- @column step INTEGER | Optimizer step.
-- @column scenario VARCHAR | actual, delayed, peer, balanced, raw, mean: all nodes; rank, stage, kind: own lengths of the subject, peers' elsewhere; fix_rank, fix_stage, fix_kind: the reverse. With paper_ by the published analysis' ideal.
-- @column subject VARCHAR | Rank or kind; empty where it is all.
-- @column time_ns BIGINT ns | From the step's first start to its last end; NULL where nodes wait for each other.
SELECT
    run_id, step, node, rank, coalesce(stage, -1) AS stage, coalesce(replica, -1) AS replica,
    coalesce(micro_batch, -1) AS micro_batch, kind,
    coalesce(prev, -1) AS prev, coalesce(sender, -1) AS sender, after,
    coalesce(group_1, -1) AS group_1, coalesce(group_2, -1) AS group_2,
    coalesce(paper_group, -1) AS paper_group,
    length_ns, delay_ns, peer_ns, balanced_ns, raw_ns, mean_ns
FROM _whatif_inputs
ORDER BY run_id, step, node
