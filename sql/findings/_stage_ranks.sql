-- Ranks of each stage, with the host they ran on.
-- @grain run_id, rank
SELECT s.run_id, s.rank, s.stage, p.host
FROM _ranks_seen AS s
JOIN _rank_places AS p USING (run_id, rank)
WHERE s.stage IS NOT NULL
