-- Which ranks compute slower than the peers that do the same work?
-- @topic stragglers
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 50 | Rows at most.
-- `straggler` is slow in at least half of the steps and in three or more; `suspect` has too few
-- steps or one peer. Look at the device, then at `slow_places` for whether it was slow before.

SELECT
    s.run_id,
    s.rank,
    s.host,
    s.device,
    s.verdict,
    s.slowdown,
    s.time_lost_ms,
    s.evidence
FROM straggler_ranks AS s
JOIN runs AS r USING (run_id)
WHERE
    s.verdict IN ('straggler', 'suspect')
    AND contains(s.run_id, $run)
    AND ($since IS NULL OR r.run_date >= $since)
ORDER BY s.verdict, s.time_lost_ms DESC NULLS LAST, s.run_id, s.rank
LIMIT $top
