-- The part of a layer that a stage holds: its time, and its share of the stage and of the layer.
-- @report Layers by stage
-- @grain run_id, layer, stage
-- @column layer_kind VARCHAR | embedding, block (numbered), head or other, by the layer's name.
-- @column p50_ms DOUBLE ms | Median time in a step, warm-up left out.
-- @column micro_batch_ms DOUBLE ms | p50_ms per micro-batch.
-- @column stage_share_ratio DOUBLE | The part's share of all listed modules of the stage.
-- @column layer_share_ratio DOUBLE | The part's share of the layer: 1 unless a stage boundary cuts it.
-- @column ops_share_ratio DOUBLE | The part's share of the layer's module calls, beside that of its time.
-- @column steps BIGINT steps | Steps counted.
WITH totals AS (
    SELECT
        *,
        sum(median_ns) OVER (PARTITION BY run_id, layer) AS layer_ns,
        sum(ops) OVER (PARTITION BY run_id, layer) AS layer_ops,
        CASE WHEN bool_and(steps > 0) OVER stage_of_run THEN
            sum(median_ns) OVER stage_of_run
        END AS stage_ns
    FROM _piece_medians
    WINDOW stage_of_run AS (PARTITION BY run_id, stage)
)
SELECT
    t.run_id,
    t.layer,
    t.stage,
    t.layer_index,
    t.layer_kind,
    ns_to_ms(t.median_ns) AS p50_ms,
    ns_to_ms(t.median_ns / r.micro_batches) AS micro_batch_ms,
    ratio(t.median_ns, t.stage_ns) AS stage_share_ratio,
    CASE WHEN r.reason IS NULL THEN ratio(t.median_ns, t.layer_ns) END AS layer_share_ratio,
    CASE WHEN r.reason IS NULL THEN ratio(t.ops, t.layer_ops) END AS ops_share_ratio,
    t.ops,
    t.steps,
    CASE
        WHEN t.steps = 0 THEN 'warmup_only'
        WHEN r.reason IS NOT NULL THEN r.reason
        WHEN t.layer_ns = 0 THEN 'below_clock_resolution'
        WHEN r.micro_batches IS NULL THEN 'micro_batches_unknown'
    END AS reason
FROM totals AS t
JOIN _layer_runs AS r USING (run_id)
