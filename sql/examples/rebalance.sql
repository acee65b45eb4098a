-- Would moving layers between stages help?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- The best split of the layers there is, and `gain_ratio`, the part of the modelled step that it
-- saves. Believe it as far as `covered_ratio` goes: what of a step the listed modules explain.

SELECT
    run_id,
    stage,
    current_first_layer,
    current_last_layer,
    current_micro_batch_ms,
    first_layer,
    last_layer,
    micro_batch_ms,
    gain_ratio,
    covered_ratio,
    bottleneck_layer
FROM stage_rebalance
WHERE gain_ratio IS NOT NULL AND contains(run_id, $run)
ORDER BY gain_ratio DESC, run_id, stage
