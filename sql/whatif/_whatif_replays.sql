-- How long every step takes when it is replayed: with its own lengths, with ideal ones, with one rank, stage or kind apart.
-- The kernel cuts operations at the calls inside them and orders these nodes, finds which end
-- together and how long each took, and the ideal lengths: see docs/what-if.md.
-- @kernel replay
-- @grain run_id, step, scenario, subject
-- @column run_id VARCHAR | Run that the step belongs to.
-- @column step INTEGER | Optimizer step.
-- @column scenario VARCHAR | actual, delayed, peer, balanced, raw, mean: all nodes; rank, stage, kind: own lengths of the subject, peers' elsewhere; fix_rank, fix_stage, fix_kind: the reverse. With paper_ by the published analysis' ideal.
-- @column subject VARCHAR | Rank or kind; empty where it is all.
-- @column time_ns BIGINT ns | From the step's first start to its last end; NULL where nodes wait for each other.
SELECT
    run_id, step, rank, seq, 0 AS sub, op, part, kind, comm, coalesce(stage, -1) AS stage, chunk,
    coalesce(replica, -1) AS replica, coalesce(micro_batch, -1) AS micro_batch, from_ns, to_ns,
    coalesce(call, 0) AS call, coalesce(sent_call, 0) AS sent_call, coalesce(tick_ns, -1) AS tick_ns,
    NULL::INTEGER AS source_rank, NULL::BIGINT AS source_seq
FROM _whatif_operations
UNION ALL BY NAME
SELECT
    run_id, step, rank, seq, sub, 'comm' AS part, call_kind(collective, group_kind, overlapped) AS kind,
    begin_ns AS from_ns, finish_ns AS to_ns, hash(run_id, identity) AS call
FROM _comm_matches
SEMI JOIN (SELECT DISTINCT run_id, step FROM _whatif_operations WHERE replica IS NULL) AS o
    USING (run_id, step)
WHERE sub > 0 AND replayed(matched, group_size, begin_ns, finish_ns)
UNION ALL BY NAME
SELECT
    m.run_id, o.step, m.rank, m.seq, 'message' AS part, 'send_recv:' || split_part(o.op, '_', 1) AS kind,
    m.from_ns, m.source_rank, m.source_seq
FROM _whatif_messages AS m
JOIN _whatif_operations AS o USING (run_id, rank, seq)
UNION ALL BY NAME
SELECT run_id, step, rank, seq, 'after' AS part, rank AS source_rank, after_seq AS source_seq
FROM _whatif_edges
