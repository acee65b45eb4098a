-- The figures of a run that are watched from run to run.
-- A bubble is watched where there is a pipeline, a bandwidth beside that of the same kind of call.
-- @internal
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
        unnest([
            {
                'metric': 'step_p50_ms', 'worse_sign': 1, 'least_change': 0,
                'value': s.step_p50_ms, 'basis': NULL, 'reason': NULL
            },
            {
                'metric': 'bubble_ratio', 'worse_sign': 1, 'least_change': 0.01,
                'value': CASE WHEN r.pp > 1 THEN s.bubble_ratio END, 'basis': NULL,
                'reason': CASE WHEN r.pp = 1 THEN 'no_pipeline' END
            },
            {
                'metric': 'busbw_gbps', 'worse_sign': -1, 'least_change': 0,
                'value': s.busbw_gbps, 'basis': s.busbw_call, 'reason': s.busbw_reason
            },
            {
                'metric': 'stragglers', 'worse_sign': 1, 'least_change': 0,
                'value': s.stragglers, 'basis': NULL, 'reason': NULL
            }
        ]) AS watched
    FROM run_summary AS s
    JOIN runs AS r USING (run_id)
)
SELECT
    run_id,
    watched.metric,
    watched.worse_sign,
    watched.least_change::DOUBLE AS least_change,
    watched.value,
    watched.basis,
    CASE WHEN watched.value IS NULL THEN coalesce(watched.reason, 'figure_missing') END AS value_reason
FROM listed
