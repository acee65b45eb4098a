-- Which timers of a training log differ most between ranks, and which rank is the slowest?
-- @topic stragglers
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top BIGINT = 20 | Rows at most.
-- Needs a log that prints timers over ranks (--timing-log-level 2, --log-straggler) or of each rank.
-- `spread_ms` is the slowest less the fastest rank; most timers are times of the host and contain waiting.

SELECT
    run_id, name, basis, records, ranks, max_ms, min_ms, spread_ms, spread_share_ratio, share_ratio,
    slowest_rank, slowest_stage, slowest_records
FROM timer_summary
WHERE contains(run_id, $run) AND spread_ms IS NOT NULL
ORDER BY spread_share_ratio DESC NULLS LAST, spread_ms DESC, run_id, name
LIMIT $top
