-- In which operations does a slow rank lose its time?
-- @topic stragglers
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- Every operation alike speaks for the device: clocks, temperature, power. One operation alone
-- speaks for the work: data, kernels, an uneven split. Only what exceeds the peers is shown.

SELECT
    o.run_id,
    o.rank,
    o.op,
    count(*) AS steps,
    count(*) FILTER (o.slow) AS slow_steps,
    median(o.own_ms) AS own_ms,
    median(o.peers_median_ms) AS peers_ms,
    median(o.slowdown) AS slowdown,
    sum(o.excess_ms::DECIMAL(18, 6))::DOUBLE AS excess_ms
FROM straggler_steps AS o
JOIN straggler_ranks AS r USING (run_id, rank)
WHERE
    r.verdict IN ('straggler', 'suspect')
    AND o.op <> 'forward_backward'
    AND o.excess_ms IS NOT NULL
    AND NOT o.warmup
    AND contains(o.run_id, $run)
GROUP BY o.run_id, o.rank, o.op
HAVING sum(o.excess_ms) > 0
ORDER BY o.run_id, o.rank, excess_ms DESC, o.op
