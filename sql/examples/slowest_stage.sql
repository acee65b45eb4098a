-- Which pipeline stage holds the others up, and by how much?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- The stage with the most time per micro-batch sets the pace of all. `share` is even at one over
-- the number of stages. `reason` says what the times of a log leave out. See `rebalance` for whether another
-- split of the layers would help.

SELECT
    run_id,
    stage,
    micro_batch_ms,
    share_ratio,
    imbalance_ratio,
    busiest_steps,
    steps,
    reason
FROM stage_balance
WHERE imbalance_ratio IS NOT NULL AND contains(run_id, $run)
ORDER BY imbalance_ratio DESC, run_id, micro_batch_ms DESC, stage
