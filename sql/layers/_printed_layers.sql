-- Time of a layer as a rank printed it in a step: a job that began again prints a step once more, and the last one counts.
-- @internal
-- @grain run_id, step, rank?, stage?, layer?
-- @column total_ns BIGINT ns | Time of its listed modules.
SELECT
    run_id, step, rank, stage, layer,
    arg_max(layer_index, (source_id, line)) AS layer_index,
    arg_max(total_ns, (source_id, line)) AS total_ns,
    arg_max(ops, (source_id, line)) AS ops
FROM layer_times
GROUP BY run_id, step, rank, stage, layer
