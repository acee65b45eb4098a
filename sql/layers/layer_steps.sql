-- Forward module time of a layer in a step, summed over the stages that hold a part of it.
-- @grain run_id, step, layer
-- @column stages BIGINT stages | Stages that printed a part of the layer; a layer cut by a stage boundary has two.
-- @column total_ms DOUBLE ms | Time of the layer's leaf modules over all micro-batches, of the slowest rank where a stage has several.
-- @column step_share_ratio DOUBLE | The layer's part of the time of all layers in the step.
-- @column deviation_ratio DOUBLE | Time over the layer's median of the run's counted steps, minus 1.
-- @column warmup BOOLEAN | Warm-up step, as in step_stats.
-- @column outlier BOOLEAN | Off the layer's median by over 5 x 1.4826 x MAD, the MAD at least 1 % of the median, both over counted steps. Warm-up is none; NULL with a part missing, or with fewer than 3 counted steps.
-- @column layer_kind VARCHAR | embedding, block (numbered), head or other, by the layer's name.
-- @column counted BOOLEAN | Enters the layer's statistics: neither warm-up nor short of a part of the layer.
-- @column total_ns BIGINT ns | total_ms, exactly.
WITH per_layer AS (
    SELECT
        run_id,
        step,
        layer,
        min(layer_index) AS layer_index,
        min(layer_kind) AS layer_kind,
        count(*) AS stages,
        try_cast(sum(total_ns) AS BIGINT) AS total_ns,
        bool_or(warmup) AS warmup
    FROM _layer_pieces
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
known AS (
    SELECT
        *,
        whole AND NOT warmup AS counted,
        step_pieces = max(step_pieces) OVER (PARTITION BY run_id) AS step_whole
    FROM expected
),
medians AS (
    SELECT
        run_id,
        layer,
        count(*) AS steps,
        quantile_cont(total_ns, 0.5) AS median_ns,
        mad(total_ns) AS mad_ns
    FROM known
    WHERE counted
    GROUP BY run_id, layer
)
SELECT
    k.run_id,
    k.step,
    k.layer,
    k.layer_index,
    k.stages,
    ns_to_ms(k.total_ns) AS total_ms,
    CASE WHEN k.step_whole THEN ratio(k.total_ns, k.step_ns) END AS step_share_ratio,
    CASE WHEN k.whole THEN ratio(k.total_ns, m.median_ns) - 1 END AS deviation_ratio,
    k.warmup,
    CASE WHEN k.whole AND m.steps >= 3 THEN
        NOT k.warmup AND abs(k.total_ns - m.median_ns) > 5 * robust_scale(m.mad_ns, m.median_ns)
    END AS outlier,
    k.layer_kind,
    k.counted,
    CASE
        WHEN NOT k.whole OR NOT k.step_whole THEN 'stages_missing'
        WHEN m.median_ns IS NULL THEN 'warmup_only'
        WHEN m.median_ns = 0 THEN 'below_clock_resolution'
        WHEN m.steps < 3 THEN 'few_steps'
    END AS reason,
    k.total_ns
FROM known AS k
LEFT JOIN medians AS m ON m.run_id = k.run_id AND m.layer = k.layer
