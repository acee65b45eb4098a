-- The shares of a run's operations add up to the time of its steps, to the microsecond.
-- @severity error
SELECT run_id, ordered_sum(share_ms) AS shares_ms, any_value(step_mean_ms) AS step_mean_ms
FROM op_shares
GROUP BY run_id
HAVING abs(ordered_sum(share_ms) - any_value(step_mean_ms)) > 0.001 OR min(share_ms) < -1e-6
