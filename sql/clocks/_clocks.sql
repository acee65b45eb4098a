-- The clocks of a run, and which of them is the reference: that of the lowest rank.
-- @grain run_id, clock
-- @column origin_ns BIGINT ns | Earliest start that was read from it.
-- @column span_ns BIGINT ns | From there to the latest end that was read from it.
-- @column reference BOOLEAN | Times of several ranks are compared on this clock.
SELECT
    run_id,
    clock,
    min(start_ns) AS origin_ns,
    max(end_ns) - min(start_ns) AS span_ns,
    min(rank) = min(min(rank)) OVER (PARTITION BY run_id) AS reference
FROM _rank_clocks
GROUP BY run_id, clock
