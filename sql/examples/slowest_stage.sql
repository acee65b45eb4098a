-- Which pipeline stage holds the others up, and by how much?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- The stage with the most time per micro-batch sets the pace of all. `share` is even at one over
-- the number of stages. See `rebalance` for whether another split of the layers would help.

SELECT
    run_id,
    stage,
    micro_batch_ms,
    share_ratio,
    imbalance_ratio,
    busiest_steps,
    steps
FROM stage_balance
WHERE reason IS NULL AND contains(run_id, $run)
ORDER BY imbalance_ratio DESC, run_id, micro_batch_ms DESC, stage
