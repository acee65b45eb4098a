-- Order of a run's layers through the model, with the time they take in a step.
-- @grain run_id, layer
-- @column position BIGINT | From 1: embedding, blocks by number, other listed modules, head.
-- @column layer_ns DOUBLE ns | Time in a step by medians, parts on several stages added.
-- @column through_ns DOUBLE ns | Time of this layer and those before it.
WITH whole AS (
    SELECT
        run_id,
        layer,
        min(layer_index) AS layer_index,
        min(layer_kind) AS layer_kind,
        sum(median_ns) AS layer_ns
    FROM _piece_medians
    GROUP BY run_id, layer
)
SELECT
    run_id,
    layer,
    row_number() OVER model_order AS position,
    layer_ns,
    sum(layer_ns) OVER model_order AS through_ns
FROM whole
WINDOW model_order AS (
    PARTITION BY run_id
    ORDER BY
        array_position(['embedding', 'block', 'other', 'head'], layer_kind),
        layer_index,
        layer
)
