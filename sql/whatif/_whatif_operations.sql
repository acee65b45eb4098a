-- What is replayed: the operations of the steps that count, in runs that can be replayed.
-- The calls inside an operation cut it into nodes: see _whatif_replays. Both lines of a fused send
-- and receive are one operation with two calls.
-- @grain run_id, rank, seq
-- @column kind VARCHAR | What is replayed together: the operation, or collective and group where it is a call itself.
-- @column direction VARCHAR | forward or backward, of passes.
-- @column comm BOOLEAN | A communication: its ideal does not follow from other stages.
-- @column chunk INTEGER | Virtual stage, 0 where there is one.
-- @column calls BIGINT | Calls inside it.
-- @column from_ns BIGINT ns | Start on the reference clock.
-- @column to_ns BIGINT ns | End, likewise.
-- @column call UBIGINT | Equal for what ends together; NULL where it is no call or has calls inside.
-- @column sent_call UBIGINT | Call of the send that is fused with this receive.
-- @column tick_ns BIGINT ns | Tick of the clock, of optimizers: all ranks may end them together.
WITH names AS (
    SELECT
        o.run_id, o.op,
        bool_or(o.category = 'collective') AS collective,
        CASE WHEN bool_or(o.kind = 'optimizer') THEN coalesce(any_value(r.clock_tick_ns), 0) END AS tick_ns
    FROM ops AS o
    JOIN runs AS r USING (run_id)
    GROUP BY o.run_id, o.op
),
intervals AS (
    SELECT
        o.run_id, o.rank, o.stage, o.step, o.seq, o.micro_batch, o.chunk, o.op, o.kind, o.part,
        o.start_ns, o.end_ns, o.from_ns, o.to_ns,
        o.part = 'p2p_send' AND o.from_ns > o.start_ns AND o.overlap_ns = 0 AS fused
    FROM _op_intervals AS o
    JOIN _whatif_scope AS s USING (run_id)
    JOIN step_stats AS t USING (run_id, step)
    WHERE s.reason IS NULL AND NOT t.warmup AND NOT s.streams
),
optimizers AS (
    SELECT o.run_id, o.step, greatest(any_value(n.tick_ns), meeting_ns(o.from_ns, o.to_ns)) AS open_ns
    FROM intervals AS o
    JOIN names AS n USING (run_id, op)
    WHERE n.tick_ns IS NOT NULL
    GROUP BY o.run_id, o.step
),
inside AS (
    SELECT run_id, rank, seq, count(*) AS calls
    FROM _comm_matches
    WHERE sub > 0 AND replayed(matched, group_size, begin_ns, finish_ns)
    GROUP BY run_id, rank, seq
),
whole AS (
    SELECT
        run_id, rank, seq, call_kind(collective, group_kind, overlapped) AS kind,
        hash(run_id, identity) AS call
    FROM _comm_matches
    WHERE sub = 0 AND replayed(matched, group_size, begin_ns, finish_ns)
),
fused AS (
    SELECT r.run_id, r.rank, min(r.seq) AS seq, min(c.call) AS sent_call
    FROM intervals AS f
    JOIN intervals AS r USING (run_id, rank, start_ns, end_ns)
    JOIN whole AS c ON c.run_id = f.run_id AND c.rank = f.rank AND c.seq = f.seq
    WHERE f.fused AND r.part = 'p2p_recv'
    GROUP BY r.run_id, r.rank, f.seq
)
SELECT
    o.run_id, o.step, o.rank, o.seq, o.op, o.part,
    CASE
        WHEN i.calls IS NOT NULL OR c.kind IS NULL THEN o.op
        WHEN c.kind = 'send_recv' THEN 'send_recv:' || split_part(o.op, '_', 2)
        ELSE c.kind
    END AS kind,
    CASE WHEN o.kind IN ('forward', 'backward') THEN o.kind END AS direction,
    o.part IN ('p2p_send', 'p2p_recv') OR coalesce(n.collective, false) AS comm,
    o.stage, coalesce(o.chunk, 0) AS chunk, o.micro_batch, NULL::INTEGER AS replica,
    coalesce(i.calls, 0) AS calls, o.from_ns, o.to_ns,
    CASE WHEN i.calls IS NULL THEN c.call END AS call,
    f.sent_call, CASE WHEN n.tick_ns IS NOT NULL THEN p.open_ns END AS tick_ns
FROM intervals AS o
JOIN names AS n USING (run_id, op)
LEFT JOIN inside AS i USING (run_id, rank, seq)
LEFT JOIN whole AS c USING (run_id, rank, seq)
LEFT JOIN fused AS f USING (run_id, rank, seq)
LEFT JOIN optimizers AS p USING (run_id, step)
WHERE NOT o.fused
UNION ALL
SELECT
    o.run_id, o.step, o.rank, o.seq, o.op,
    CASE
        WHEN o.category = 'p2p' THEN 'p2p_' || split_part(o.op, '_', 1)
        WHEN o.category IN ('compute', 'data', 'optimizer') THEN o.category
        ELSE 'finalize'
    END AS part,
    CASE
        WHEN o.category = 'p2p' THEN 'send_recv:' || split_part(o.op, '_', 2)
        WHEN c.collective IS NOT NULL THEN c.collective || ':' || c.group_kind
        ELSE o.op
    END,
    CASE WHEN o.kind IN ('forward', 'backward') THEN o.kind END,
    part IN ('p2p_send', 'p2p_recv') OR coalesce(n.collective, false),
    o.stage, coalesce(o.chunk, 0), o.micro_batch, p.replica, 0,
    aligned_ns(o.start_ns, k.offset_ns, k.drift, k.origin_ns),
    aligned_ns(o.end_ns, k.offset_ns, k.drift, k.origin_ns),
    CASE WHEN p.call IS NOT NULL THEN hash(o.run_id, o.step, p.call) END,
    NULL, NULL
FROM ops AS o
JOIN names AS n USING (run_id, op)
JOIN _whatif_scope AS s USING (run_id)
JOIN _whatif_streams AS p USING (run_id, rank, seq)
JOIN clock_offsets AS k USING (run_id, rank)
LEFT JOIN comms AS c USING (run_id, rank, seq)
WHERE s.reason IS NULL AND s.streams
