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
logged AS (
    SELECT l.run_id, l.step, l.stage, l.rank, sum(l.total_ns) / t.micro_batches AS micro_batch_ns
    FROM (
        -- A job that began again prints a step once more.
        SELECT run_id, step, stage, rank, layer, arg_max(total_ns, (source_id, line)) AS total_ns
        FROM layer_times
        GROUP BY ALL
    ) AS l
    JOIN _pipelines AS t USING (run_id)
    GROUP BY l.run_id, l.step, l.stage, l.rank, t.micro_batches
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
