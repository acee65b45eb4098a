-- No two operations of a rank claim the same time; what they share was counted once.
-- Kernels run on streams beside each other, and have no windows that this could be wrong in.
-- @severity warning
SELECT run_id, step, rank, overlap_ns
FROM rank_bubbles
WHERE overlap_ns > 0 AND reason IS DISTINCT FROM 'kernels_only'
