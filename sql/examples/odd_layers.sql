-- In which step did which layer take unusually long?
-- @topic steps
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `deviation_ratio` is the time over the layer's median of the run, minus 1. One step is an event
-- on the host; the same layer in many steps is the model: see `layer_drift`.

SELECT run_id, step, layer, stages, total_ms, deviation_ratio
FROM layer_steps
WHERE outlier AND contains(run_id, $run)
ORDER BY abs(deviation_ratio) DESC, run_id, step, layer
LIMIT $top
