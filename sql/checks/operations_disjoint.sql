-- No two operations of a rank claim the same time; what they share was counted once.
-- @severity warning
SELECT run_id, step, rank, overlap_ns
FROM rank_bubbles
WHERE overlap_ns > 0
