-- The figures of a run that are watched from run to run.
-- @internal
-- @scope fleet
-- @grain run_id, metric
-- @column metric VARCHAR | Column of run_summary.
-- @column worse_sign INTEGER | 1 where more is worse, -1 where less is.
-- @column value DOUBLE | The figure.
WITH listed AS (
    SELECT
        run_id,
        unnest([
            struct_pack(metric := 'step_p50_ms', worse_sign := 1, value := step_p50_ms),
            struct_pack(metric := 'bubble_ratio', worse_sign := 1, value := bubble_ratio),
            struct_pack(metric := 'busbw_gbps', worse_sign := -1, value := busbw_gbps),
            struct_pack(metric := 'stragglers', worse_sign := 1, value := stragglers)
        ]) AS watched
    FROM run_summary
)
SELECT run_id, watched.metric, watched.worse_sign, watched.value
FROM listed
