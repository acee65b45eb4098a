-- Messages of runs that trace passes and no messages: a pass needs the result of the stage before it.
-- The message lasts until the pass begins, from when the result was there and the rank was free.
-- @grain run_id, rank, seq
-- @column source_rank INTEGER | Rank whose result the pass needs.
-- @column source_seq BIGINT | Its pass.
-- @column from_ns BIGINT ns | Start of the message on the reference clock; it ends where the pass begins.
WITH silent AS (
    SELECT o.run_id, max(o.stage) + 1 AS stages, coalesce(max(o.chunk), 0) + 1 AS chunks
    FROM ops AS o
    JOIN _whatif_scope AS s USING (run_id)
    WHERE s.reason IS NULL AND NOT s.streams
    GROUP BY o.run_id
    HAVING stages > 1 AND count(*) FILTER (o.category = 'p2p') = 0
),
timed AS (
    SELECT
        run_id, rank, seq, from_ns, to_ns,
        lag(to_ns) OVER (PARTITION BY run_id, step, rank ORDER BY from_ns, seq) AS free_ns
    FROM _op_intervals
    SEMI JOIN silent USING (run_id)
),
passes AS (
    SELECT
        o.run_id, o.rank, o.seq, o.step, o.micro_batch, o.pass, i.from_ns, i.to_ns, i.free_ns,
        coalesce(o.chunk, 0) * s.stages + o.stage AS place,
        dense_rank() OVER (PARTITION BY o.run_id, o.stage ORDER BY o.rank) AS replica
    FROM ops AS o
    JOIN silent AS s USING (run_id)
    JOIN timed AS i USING (run_id, rank, seq)
    WHERE o.kind IN ('forward', 'backward') AND o.micro_batch IS NOT NULL
)
SELECT
    p.run_id, p.rank, p.seq, b.rank AS source_rank, b.seq AS source_seq,
    least(p.from_ns, greatest(b.to_ns, p.free_ns)) AS from_ns
FROM passes AS p
JOIN passes AS b
    ON b.run_id = p.run_id AND b.step = p.step AND b.replica = p.replica AND b.pass = p.pass
    AND b.micro_batch = p.micro_batch
    AND b.place = p.place - CASE p.pass WHEN 'forward' THEN 1 ELSE -1 END
QUALIFY count(*) OVER (PARTITION BY p.run_id, p.rank, p.seq) = 1
