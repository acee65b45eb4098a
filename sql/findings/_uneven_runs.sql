-- Runs whose steps do not have the same work, so that a longer step is not a slower one.
-- The samples of a step change, or its log says that sizes of the job do or that sequences grow, or its
-- tokens change, as where a step generates what it trains on: between their quarters lies more than a
-- tenth of the median. What pauses a few steps does not show there.
-- @grain run_id
WITH tokens AS (
    SELECT t.run_id, t.step, any_value(s.step_ms) * max(t.tokens_per_s) AS tokens
    FROM train_steps AS t
    JOIN step_stats AS s USING (run_id, step)
    -- Only with a time that is printed: dates are coarse, and the other times come from a speed.
    WHERE t.tokens_per_s > 0 AND NOT s.warmup AND s.time_basis IN ('own', 'mean')
    GROUP BY t.run_id, t.step
)
SELECT run_id
FROM train_steps
GROUP BY run_id
HAVING min(global_batch_size) < max(global_batch_size)
UNION
SELECT run_id FROM faults WHERE name = 'sizes_changed'
UNION
SELECT run_id FROM runs WHERE attributes['sequence_length'] = 'grows'
UNION
SELECT run_id
FROM tokens
GROUP BY run_id
HAVING quantile_cont(tokens, 0.75) - quantile_cont(tokens, 0.25) > 0.1 * median(tokens)
