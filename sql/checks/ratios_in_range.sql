-- Shares and bubbles lie between 0 and 1.
-- @severity error
SELECT run_id, 'rank_bubbles' AS model, bubble_ratio AS ratio
FROM rank_bubbles
WHERE bubble_ratio NOT BETWEEN 0 AND 1
UNION ALL
SELECT run_id, 'stage_bubbles', bubble_ratio
FROM stage_bubbles
WHERE bubble_ratio NOT BETWEEN 0 AND 1
UNION ALL
SELECT run_id, 'layer_steps', step_share_ratio
FROM layer_steps
WHERE step_share_ratio NOT BETWEEN 0 AND 1
UNION ALL
SELECT run_id, 'coverage', coverage_ratio
FROM coverage
WHERE coverage_ratio NOT BETWEEN 0 AND 1
