-- Time of the part of a layer that a stage holds, in a step.
-- @grain run_id, step, layer, stage
-- @column layer_kind VARCHAR | embedding, block, head or other, by the layer's name.
-- @column total_ns BIGINT ns | Of the slowest rank where the stage has several.
WITH slowest AS (
    SELECT
        run_id,
        step,
        layer,
        stage,
        min(layer_index) AS layer_index,
        max(total_ns) AS total_ns,
        max(ops) AS ops
    FROM _printed_layers
    GROUP BY run_id, step, layer, stage
)
SELECT p.*, layer_kind(p.layer, p.layer_index) AS layer_kind, s.warmup
FROM slowest AS p
JOIN step_stats AS s USING (run_id, step)
