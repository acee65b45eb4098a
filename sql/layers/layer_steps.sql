-- Forward module time of a layer in a step, summed over the stages that hold a part of it.
-- @grain run_id, step, layer
-- @column stages BIGINT stages | Stages that printed a part of the layer; a layer cut by a stage boundary has two.
-- @column total_ms DOUBLE ms | Time of the layer's leaf modules over all micro-batches, of the slowest rank where a stage has several.
-- @column step_share_ratio DOUBLE | The layer's part of the time of all layers in the step.
-- @column deviation_ratio DOUBLE | Time over the layer's median of the run's steps without warm-up, minus 1.
-- @column total_ns BIGINT ns | total_ms, exactly.
-- @column warmup BOOLEAN | Warm-up step, as in step_stats.
WITH per_stage AS (
    SELECT
        run_id, step, layer, stage,
        min(layer_index) AS layer_index,
        max(total_ns) AS total_ns
    FROM layer_times
    WHERE layer IS NOT NULL
    GROUP BY run_id, step, layer, stage
),
per_layer AS (
    SELECT
        run_id, step, layer,
        min(layer_index) AS layer_index,
        count(*) AS stages,
        sum(total_ns)::BIGINT AS total_ns
    FROM per_stage
    GROUP BY run_id, step, layer
),
expected AS (
    SELECT
        *,
        stages = max(stages) OVER (PARTITION BY run_id, layer) AS whole,
        sum(stages) OVER (PARTITION BY run_id, step) AS step_pieces,
        sum(total_ns) OVER (PARTITION BY run_id, step) AS step_ns
    FROM per_layer
),
judged AS (
    SELECT
        e.*,
        step_pieces = max(step_pieces) OVER (PARTITION BY run_id) AS step_whole,
        s.warmup
    FROM expected AS e
    JOIN step_stats AS s USING (run_id, step)
)
SELECT
    run_id,
    step,
    layer,
    layer_index,
    stages,
    ns_to_ms(total_ns) AS total_ms,
    CASE WHEN step_whole THEN ratio(total_ns, step_ns) END AS step_share_ratio,
    CASE WHEN whole THEN
        ratio(total_ns, quantile_cont(total_ns, 0.5) FILTER (whole AND NOT warmup) OVER (
            PARTITION BY run_id, layer
        )) - 1
    END AS deviation_ratio,
    warmup,
    CASE WHEN NOT whole OR NOT step_whole THEN 'stages_missing' END AS reason,
    total_ns
FROM judged
