-- Median time of the part of a layer that a stage holds, over the run's steps without warm-up.
-- @grain run_id, layer, stage
-- @column steps BIGINT steps | Steps counted.
-- @column median_ns DOUBLE ns | In a step: a multiple of a half, so that sums are exact in any order.
SELECT
    run_id,
    layer,
    stage,
    min(layer_index) AS layer_index,
    min(layer_kind) AS layer_kind,
    count(*) FILTER (NOT warmup) AS steps,
    quantile_cont(total_ns, 0.5) FILTER (NOT warmup) AS median_ns,
    max(ops) AS ops
FROM _layer_pieces
GROUP BY run_id, layer, stage
