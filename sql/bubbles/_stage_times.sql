-- Time of a stage per micro-batch in a step: that of its slowest rank.
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
    ANTI JOIN (SELECT run_id, rank, seq FROM _op_intervals WHERE doubled) AS d USING (run_id, rank, seq)
    WHERE s.finished AND o.kind IN ('forward', 'backward')
    GROUP BY s.run_id, s.step, s.stage, s.rank, s.forwards, t.virtual_stages
),
placed AS (
    SELECT
        run_id, stage, rank, step,
        sum(total_ns) AS total_ns,
        row_number() OVER (PARTITION BY run_id, stage, rank ORDER BY step) AS place
    FROM _printed_layers
    GROUP BY run_id, stage, rank, step
),
-- A step that lacks a layer which its rank prints before and after says too little of the stage.
spans AS (
    SELECT run_id, stage, rank, layer, min(step) AS first_step, max(step) AS last_step, count(*) AS prints
    FROM _printed_layers
    GROUP BY run_id, stage, rank, layer
),
torn AS (
    SELECT DISTINCT p.run_id, p.stage, p.rank, p.step
    FROM spans AS s
    JOIN placed AS a ON (a.run_id, a.stage, a.rank, a.step) = (s.run_id, s.stage, s.rank, s.first_step)
    JOIN placed AS b ON (b.run_id, b.stage, b.rank, b.step) = (s.run_id, s.stage, s.rank, s.last_step)
    JOIN placed AS p
        ON (p.run_id, p.stage, p.rank) = (s.run_id, s.stage, s.rank) AND p.place BETWEEN a.place AND b.place
    ANTI JOIN _printed_layers AS l
        ON (l.run_id, l.stage, l.rank, l.step, l.layer) = (s.run_id, s.stage, s.rank, p.step, s.layer)
    WHERE b.place - a.place >= s.prints
),
logged AS (
    SELECT p.run_id, p.step, p.stage, p.rank, p.total_ns / t.micro_batches AS micro_batch_ns
    FROM placed AS p
    JOIN _pipelines AS t USING (run_id)
    ANTI JOIN torn AS x USING (run_id, stage, rank, step)
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
