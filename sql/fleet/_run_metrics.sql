-- The figures of a run that are watched from run to run.
-- A bubble is watched where there is a pipeline, a bandwidth beside that of the same kind of call.
-- @scope fleet
-- @grain run_id, metric
-- @column metric VARCHAR | Column of run_summary.
-- @column worse_sign INTEGER | 1 where more is worse, -1 where less is.
-- @column least_change DOUBLE | A smaller change is none, whatever the spread: a percentage point of a fraction.
-- @column value DOUBLE | The figure.
-- @column basis VARCHAR | What it is the figure of; only figures of the same are compared.
-- @column value_reason VARCHAR | Why there is no figure.
WITH listed AS (
    SELECT
        run_id,
        r.pp,
        s.busbw_call,
        s.busbw_reason,
        unnest([
            struct_pack(metric := 'step_p50_ms', worse_sign := 1, value := s.step_p50_ms),
            struct_pack(metric := 'bubble_ratio', worse_sign := 1, value := CASE WHEN r.pp > 1 THEN s.bubble_ratio END),
            struct_pack(metric := 'busbw_gbps', worse_sign := -1, value := s.busbw_gbps),
            struct_pack(metric := 'stragglers', worse_sign := 1, value := s.stragglers)
        ], recursive := true)
    FROM run_summary AS s
    JOIN runs AS r USING (run_id)
)
SELECT
    run_id,
    metric,
    worse_sign,
    CASE metric WHEN 'bubble_ratio' THEN 0.01 ELSE 0 END::DOUBLE AS least_change,
    value,
    CASE metric WHEN 'busbw_gbps' THEN busbw_call END AS basis,
    CASE
        WHEN value IS NOT NULL THEN NULL
        WHEN metric = 'bubble_ratio' AND pp = 1 THEN 'no_pipeline'
        WHEN metric = 'busbw_gbps' AND busbw_reason IS NOT NULL THEN 'coarse_calls'
        ELSE 'figure_missing'
    END AS value_reason
FROM listed
