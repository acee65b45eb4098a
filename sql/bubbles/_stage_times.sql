-- Time of a stage per micro-batch in a step: that of its slowest rank.
-- @internal
-- @grain run_id, step, stage
-- @column ranks BIGINT ranks | Ranks of the stage that say it.
-- @column micro_batch_ns DOUBLE ns | Forward and backward time per micro-batch; of stdout logs the forward time of the listed modules alone.
-- @column forward_only BOOLEAN | Only forward times of listed modules are known.
WITH traced AS (
    SELECT
        s.run_id, s.step, s.stage, s.rank,
        sum(o.duration_ns) / (s.forwards / t.virtual_stages) AS micro_batch_ns
    FROM _rank_steps AS s
    JOIN ops AS o USING (run_id, step, rank)
    JOIN _pipelines AS t USING (run_id)
    WHERE s.finished AND o.kind IN ('forward', 'backward')
    GROUP BY s.run_id, s.step, s.stage, s.rank, s.forwards, t.virtual_stages
),
-- A step in which a rank lacks one of its layers says too little of its stage.
held AS (
    SELECT run_id, stage, rank, count(DISTINCT layer) AS layers
    FROM _printed_layers
    GROUP BY run_id, stage, rank
),
logged AS (
    SELECT l.run_id, l.step, l.stage, l.rank, sum(l.total_ns) / t.micro_batches AS micro_batch_ns
    FROM _printed_layers AS l
    JOIN _pipelines AS t USING (run_id)
    JOIN held AS h ON h.run_id = l.run_id AND h.stage = l.stage AND h.rank IS NOT DISTINCT FROM l.rank
    GROUP BY l.run_id, l.step, l.stage, l.rank, t.micro_batches, h.layers
    HAVING count(l.layer) = h.layers
),
ranks AS (
    SELECT *, false AS forward_only FROM traced
    UNION ALL
    SELECT *, true FROM logged
)
SELECT
    run_id,
    step,
    stage,
    count(*) AS ranks,
    max(micro_batch_ns) AS micro_batch_ns,
    bool_or(forward_only) AS forward_only
FROM ranks
WHERE stage IS NOT NULL
GROUP BY run_id, step, stage
