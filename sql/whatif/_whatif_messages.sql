-- Messages of runs that trace passes and no messages: a pass needs the result of the stage before it.
-- The message lasts until the pass begins, from when the result was there and the rank was free.
-- @internal
-- @grain run_id, rank, seq
-- @column source_rank INTEGER | Rank whose result the pass needs.
-- @column source_seq BIGINT | Its pass.
-- @column ready_ns BIGINT ns | End of that pass on the reference clock.
WITH silent AS (
    SELECT o.run_id, max(o.stage) + 1 AS stages, coalesce(max(o.chunk), 0) + 1 AS chunks
    FROM ops AS o
    JOIN _whatif_scope AS s USING (run_id)
    WHERE s.reason IS NULL AND NOT s.streams
    GROUP BY o.run_id
    HAVING stages > 1 AND count(*) FILTER (o.category = 'p2p') = 0
),
passes AS (
    SELECT
        o.run_id, o.rank, o.seq, o.step, o.micro_batch, o.pass, i.to_ns,
        coalesce(o.chunk, 0) * s.stages + o.stage AS place,
        dense_rank() OVER (PARTITION BY o.run_id, o.stage ORDER BY o.rank) AS replica
    FROM ops AS o
    JOIN silent AS s USING (run_id)
    JOIN _op_intervals AS i USING (run_id, rank, seq)
    WHERE o.kind IN ('forward', 'backward') AND o.micro_batch IS NOT NULL
)
SELECT
    p.run_id, p.rank, p.seq, b.rank AS source_rank, b.seq AS source_seq, b.to_ns AS ready_ns
FROM passes AS p
JOIN passes AS b
    ON b.run_id = p.run_id AND b.step = p.step AND b.replica = p.replica AND b.pass = p.pass
    AND b.micro_batch = p.micro_batch
    AND b.place = p.place - CASE p.pass WHEN 'forward' THEN 1 ELSE -1 END
QUALIFY count(*) OVER (PARTITION BY p.run_id, p.rank, p.seq) = 1
