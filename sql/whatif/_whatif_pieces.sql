-- What a rank did in a step, piece after piece: an operation, or its compute and its communications in turn.
-- Where a rank has several streams, an operation is one piece. Both lines of a fused send and receive are one piece with two calls.
-- A message that the trace does not have is a piece before the pass that waits for it.
-- @internal
-- @grain run_id, rank, seq, piece
-- @column piece BIGINT | Place within the operation, from 0; communications are odd, a message before it is -1.
-- @column part VARCHAR | As in _op_intervals; `comm` for a communication inside an operation, `message` for a message before it.
-- @column kind VARCHAR | What is replayed together: the operation, or collective and group.
-- @column replica INTEGER | Place of the rank within its stage, where ranks have several streams.
-- @column from_ns BIGINT ns | Start on the reference clock.
-- @column to_ns BIGINT ns | End, likewise.
-- @column call UBIGINT | Equal for the pieces that end together; NULL outside of groups.
-- @column sent_call UBIGINT | Call of the send that is fused with this receive.
WITH intervals AS (
    SELECT
        o.run_id, o.step, o.rank, o.seq, o.op, o.part, o.start_ns, o.end_ns, o.from_ns, o.to_ns,
        o.part = 'p2p_send' AND o.from_ns > o.start_ns AND o.overlap_ns = 0 AS fused
    FROM _op_intervals AS o
    JOIN _whatif_scope AS s USING (run_id)
    JOIN step_stats AS t USING (run_id, step)
    WHERE s.reason IS NULL AND NOT t.warmup AND NOT s.streams
),
calls AS (
    SELECT
        run_id, rank, seq, sub, hash(run_id, identity) AS call, begin_ns, finish_ns,
        CASE WHEN collective IN ('send', 'recv') THEN 'send_recv' ELSE collective || ':' || group_kind
        END AS kind
    FROM _comm_matches
    WHERE matched AND group_size > 1 AND begin_ns IS NOT NULL AND finish_ns IS NOT NULL
),
whole AS (SELECT run_id, rank, seq, call, kind FROM calls WHERE sub = 0),
fused AS (
    SELECT r.run_id, r.rank, min(r.seq) AS seq, min(c.call) AS sent_call
    FROM intervals AS f
    JOIN intervals AS r USING (run_id, rank, start_ns, end_ns)
    JOIN whole AS c ON c.run_id = f.run_id AND c.rank = f.rank AND c.seq = f.seq
    WHERE f.fused AND r.part = 'p2p_recv'
    GROUP BY r.run_id, r.rank, f.seq
),
cut AS (
    SELECT
        o.run_id, o.step, o.rank, o.seq, o.op, o.part, c.kind, c.call,
        row_number() OVER operation AS number,
        least(o.to_ns, greatest(o.from_ns, coalesce(
            max(c.finish_ns) OVER (operation ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            o.from_ns
        ))) AS free_ns,
        least(o.to_ns, greatest(c.begin_ns, free_ns)) AS from_ns,
        greatest(least(o.to_ns, c.finish_ns), least(o.to_ns, greatest(c.begin_ns, free_ns))) AS to_ns
    FROM intervals AS o
    JOIN calls AS c USING (run_id, rank, seq)
    WHERE c.sub > 0
    WINDOW operation AS (PARTITION BY o.run_id, o.rank, o.seq ORDER BY c.sub)
),
ends AS (
    SELECT run_id, rank, seq, count(*) AS calls, max(to_ns) AS free_ns
    FROM cut
    GROUP BY run_id, rank, seq
)
SELECT
    run_id, step, rank, seq, 2 * number - 2 AS piece, op, part, op AS kind, NULL::INTEGER AS replica,
    free_ns AS from_ns, from_ns AS to_ns, NULL::UBIGINT AS call, NULL::UBIGINT AS sent_call
FROM cut
UNION ALL
SELECT
    run_id, step, rank, seq, 2 * number - 1, op, 'comm', kind, NULL, from_ns, to_ns, call, NULL
FROM cut
UNION ALL
SELECT
    o.run_id, o.step, o.rank, o.seq, coalesce(2 * e.calls, 0), o.op, o.part,
    CASE
        WHEN e.calls IS NOT NULL OR c.kind IS NULL THEN o.op
        WHEN c.kind = 'send_recv' THEN 'send_recv:' || split_part(o.op, '_', 2)
        ELSE c.kind
    END,
    NULL, coalesce(e.free_ns, o.from_ns), o.to_ns,
    CASE WHEN e.calls IS NULL THEN c.call END,
    f.sent_call
FROM intervals AS o
LEFT JOIN ends AS e USING (run_id, rank, seq)
LEFT JOIN whole AS c USING (run_id, rank, seq)
LEFT JOIN fused AS f USING (run_id, rank, seq)
WHERE NOT o.fused
UNION ALL
SELECT
    o.run_id, o.step, o.rank, o.seq, -1, o.op, 'message',
    'send_recv:' || split_part(o.op, '_', 1), NULL,
    least(o.from_ns, greatest(m.ready_ns, o.free_ns)), o.from_ns, NULL, NULL
FROM _whatif_messages AS m
JOIN (
    SELECT
        run_id, step, rank, seq, op, from_ns,
        lag(to_ns) OVER (PARTITION BY run_id, step, rank ORDER BY from_ns, seq) AS free_ns
    FROM intervals
    SEMI JOIN (SELECT DISTINCT run_id FROM _whatif_messages) AS silent USING (run_id)
) AS o USING (run_id, rank, seq)
UNION ALL
SELECT
    o.run_id, o.step, o.rank, o.seq, 0, o.op,
    CASE
        WHEN o.category = 'p2p' THEN 'p2p_' || split_part(o.op, '_', 1)
        WHEN o.category IN ('compute', 'data', 'optimizer') THEN o.category
        ELSE 'finalize'
    END,
    CASE
        WHEN o.category = 'p2p' THEN 'send_recv:' || split_part(o.op, '_', 2)
        WHEN c.collective IS NOT NULL THEN c.collective || ':' || c.group_kind
        ELSE o.op
    END,
    p.replica,
    aligned_ns(o.start_ns, k.offset_ns, k.drift, k.origin_ns),
    aligned_ns(o.end_ns, k.offset_ns, k.drift, k.origin_ns),
    CASE WHEN p.call IS NOT NULL THEN hash(o.run_id, o.step, p.call) END,
    NULL
FROM ops AS o
JOIN _whatif_scope AS s USING (run_id)
JOIN _whatif_streams AS p USING (run_id, rank, seq)
JOIN clock_offsets AS k USING (run_id, rank)
LEFT JOIN comms AS c USING (run_id, rank, seq)
WHERE s.reason IS NULL AND s.streams
