-- A call has each of its ranks once.
-- @severity error
SELECT run_id, call, rank, count(*) AS communications
FROM collective_calls
GROUP BY run_id, call, rank
HAVING count(*) > 1
