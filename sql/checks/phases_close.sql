-- The phases of a rank's pipeline window add up to it, and their idle time to its idle time.
-- @severity error
SELECT p.run_id, p.step, p.rank, sum(p.phase_ns) AS phases_ns, b.window_ns, sum(p.idle_ns) AS idle_ns
FROM phase_bubbles AS p
JOIN rank_bubbles AS b USING (run_id, step, rank)
WHERE p.phase_ns IS NOT NULL
GROUP BY p.run_id, p.step, p.rank, b.window_ns, b.compute_ns, b.data_ns, b.in_op_comm_ns
HAVING sum(p.phase_ns) <> b.window_ns
    OR sum(p.idle_ns) <> b.window_ns - b.compute_ns - b.data_ns - b.in_op_comm_ns
    OR least(min(p.phase_ns), min(p.idle_ns)) < 0
