-- What the layer times of a run add up to, and why they do not show the whole model.
-- @grain run_id
-- @column listed BIGINT layers | Layers with a time, embedding and head among them.
-- @column split_reason VARCHAR | Why they cannot be split anew.
-- @column all_ns DOUBLE ns | Time of all layers in a step, by medians.
WITH sums AS (
    SELECT
        run_id,
        count(DISTINCT stage) AS stages_seen,
        count(DISTINCT stage) FILTER (steps > 0) AS stages_timed,
        max(stage) AS last_stage,
        bool_and(steps > 0) AS timed,
        count(DISTINCT layer) AS listed,
        sum(median_ns) AS all_ns
    FROM _piece_medians
    GROUP BY run_id
)
SELECT
    run_id, p.stages, p.virtual_stages, p.micro_batches, s.listed, s.all_ns,
    CASE
        WHEN p.stages IS NULL OR s.last_stage >= p.stages THEN 'topology_unknown'
        WHEN s.stages_seen < p.stages THEN 'stages_missing'
        WHEN s.stages_timed = 0 THEN 'warmup_only'
        WHEN NOT s.timed THEN 'stages_missing'
        WHEN s.all_ns = 0 THEN 'below_clock_resolution'
    END AS reason,
    coalesce(reason, CASE
        WHEN p.virtual_stages > 1 THEN 'interleaved_schedule'
        WHEN s.listed < p.stages THEN 'fewer_layers_than_stages'
    END) AS split_reason
FROM sums AS s
JOIN _pipelines AS p USING (run_id)
