-- Which timers of a training log differ most between ranks, and which rank is the slowest?
-- @topic stragglers
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- Needs a log that prints timers over ranks (--timing-log-level 2, --log-straggler) or of each rank.
-- `spread_ms` is the slowest less the fastest rank; most timers are times of the host and contain waiting.
-- All figures are medians of the whole run: where its steps became slower on the way, `slowed` says since when, and
-- `ask why` which timer came apart then.

SELECT
    t.run_id, t.name, t.basis, t.records, t.ranks, t.max_ms, t.min_ms, t.spread_ms, t.spread_share_ratio,
    t.share_ratio, t.slowest_rank, t.slowest_stage, t.slowest_records, f.brief AS slowed
FROM timer_summary AS t
LEFT JOIN findings AS f ON f.run_id = t.run_id AND f.kind = 'slowed'
WHERE contains(t.run_id, $run) AND t.spread_ms IS NOT NULL
ORDER BY t.spread_share_ratio DESC NULLS LAST, t.spread_ms DESC, t.run_id, t.name
LIMIT $top
