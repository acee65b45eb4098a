-- Time of a layer as a rank printed it in a step: a job that began again prints a step once more, and the last one counts.
-- @grain run_id, step, rank, stage, layer
-- @column total_ns BIGINT ns | Time of its listed modules.
SELECT run_id, step, rank, stage, layer, layer_index, total_ns, ops
FROM layer_times
QUALIFY row_number() OVER (
    PARTITION BY run_id, step, rank, stage, layer ORDER BY source_id DESC, line DESC
) = 1
