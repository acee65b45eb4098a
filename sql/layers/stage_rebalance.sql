-- The best split of the measured layers into consecutive stages, beside the split as it ran.
-- Times are medians of whole layers, parts on two stages added. Columns of the split as it ran begin
-- with current_. A moved layer is taken to keep its time: see current_block_ms.
-- @report A better split of the layers
-- @grain run_id, stage
-- @column first_layer VARCHAR | First layer of the stage in the best split: the smallest largest stage, then the smallest second largest, and so on.
-- @column last_layer VARCHAR | Its last layer.
-- @column layers INTEGER layers | Its layers, embedding and head counted.
-- @column micro_batch_ms DOUBLE ms | Its forward module time per micro-batch.
-- @column current_micro_batch_ms DOUBLE ms | That of the stage as it ran.
-- @column gain_ratio DOUBLE | Part of the modelled step that the best split saves, the same for every stage; negative where the run's own split, which may cut layers, is better.
-- @column imbalance_ratio DOUBLE | Largest stage over the mean of the stages in the best split.
-- @column current_imbalance_ratio DOUBLE | The same of the split as it ran.
-- @column modelled_step_ms DOUBLE ms | Step of the best split by its forward module times: m max t + (sum of t - max t) / v.
-- @column current_modelled_step_ms DOUBLE ms | The same of the split as it ran.
-- @column covered_ratio DOUBLE | m max t as it ran over the median step time: what of a step the listed modules explain, and with it the gain.
-- @column bottleneck_layer VARCHAR | Layer that is the largest stage of the best split alone: no split between layers can be faster.
-- @column current_block_ms DOUBLE ms | Median time per micro-batch of the blocks that the stage held whole. Blocks of one model do the same work: where stages differ, a moved layer will not keep its time.
-- @column current_first_layer VARCHAR | First layer that the stage held at least in part.
-- @column current_last_layer VARCHAR | Last layer that it held at least in part.
WITH held AS (
    SELECT
        p.run_id,
        p.stage,
        CASE WHEN bool_and(p.steps > 0) THEN sum(p.median_ns) END AS load_ns,
        quantile_cont(p.median_ns, 0.5)
            FILTER (p.layer_kind = 'block' AND p.median_ns = o.layer_ns) AS block_ns,
        arg_min(p.layer, o.position) AS first_layer,
        arg_max(p.layer, o.position) AS last_layer
    FROM _piece_medians AS p
    JOIN _layer_order AS o USING (run_id, layer)
    GROUP BY p.run_id, p.stage
),
proposed AS (
    SELECT
        s.run_id,
        s.stage,
        a.layer AS first_layer,
        b.layer AS last_layer,
        s.last_position - s.first_position + 1 AS layers,
        b.through_ns - a.through_ns + a.layer_ns AS load_ns
    FROM _stage_splits AS s
    JOIN _layer_order AS a ON a.run_id = s.run_id AND a.position = s.first_position
    JOIN _layer_order AS b ON b.run_id = s.run_id AND b.position = s.last_position
),
compared AS (
    SELECT
        h.run_id,
        h.stage,
        h.load_ns AS held_ns,
        h.block_ns AS held_block_ns,
        h.first_layer AS held_first,
        h.last_layer AS held_last,
        max(h.load_ns) OVER whole_run AS held_max_ns,
        p.* EXCLUDE (run_id, stage),
        max(p.load_ns) OVER whole_run AS max_ns,
        arg_min(
            CASE WHEN p.layers = 1 THEN p.first_layer ELSE '' END, (-p.load_ns, p.layers, p.stage)
        ) OVER whole_run AS bottleneck
    FROM held AS h
    LEFT JOIN proposed AS p ON p.run_id = h.run_id AND p.stage = h.stage
    WINDOW whole_run AS (PARTITION BY h.run_id)
),
timed AS (
    SELECT
        c.*,
        r.micro_batches,
        r.split_reason,
        ratio(c.max_ns * r.stages, r.all_ns) AS imbalance_ratio,
        ratio(c.held_max_ns * r.stages, r.all_ns) AS held_imbalance_ratio,
        ns_to_ms(c.held_max_ns) AS held_max_ms,
        ns_to_ms(pipeline_time(
            r.micro_batches, r.virtual_stages,
            c.max_ns / r.micro_batches, r.all_ns / r.micro_batches
        )) AS modelled_step_ms,
        ns_to_ms(pipeline_time(
            r.micro_batches, r.virtual_stages,
            c.held_max_ns / r.micro_batches, r.all_ns / r.micro_batches
        )) AS held_step_ms,
        r.reason IS NULL AS whole
    FROM compared AS c
    JOIN _layer_runs AS r USING (run_id)
)
SELECT
    c.run_id,
    c.stage,
    c.first_layer,
    c.last_layer,
    c.layers::INTEGER AS layers,
    ns_to_ms(c.load_ns / c.micro_batches) AS micro_batch_ms,
    ns_to_ms(c.held_ns / c.micro_batches) AS current_micro_batch_ms,
    1 - ratio(c.modelled_step_ms, c.held_step_ms) AS gain_ratio,
    c.imbalance_ratio,
    CASE WHEN c.whole THEN c.held_imbalance_ratio END AS current_imbalance_ratio,
    c.modelled_step_ms,
    CASE WHEN c.whole THEN c.held_step_ms END AS current_modelled_step_ms,
    CASE WHEN c.whole THEN ratio(c.held_max_ms, t.step_p50_ms) END AS covered_ratio,
    nullif(c.bottleneck, '') AS bottleneck_layer,
    ns_to_ms(c.held_block_ns / c.micro_batches) AS current_block_ms,
    c.held_first AS current_first_layer,
    c.held_last AS current_last_layer,
    CASE
        WHEN c.split_reason IS NOT NULL THEN c.split_reason
        WHEN c.micro_batches IS NULL THEN 'micro_batches_unknown'
        ELSE 'forward_modules_only'
    END AS reason
FROM timed AS c
LEFT JOIN _run_spans AS t USING (run_id)
