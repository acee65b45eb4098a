-- Is it the same one again: what was compared over the latest runs of a configuration, and in how many of them it was slow.
-- A subject is a device where host and device of a rank are known, a host where only that is, else
-- a rank. Slow in a run: one of its ranks is a straggler or a suspect there.
-- @report Recurring stragglers
-- @scope fleet
-- @grain config, host?, device?, rank?
-- @column subject VARCHAR | The device, host or rank, in words.
-- @column rank INTEGER | The rank where no host is known; a host or device bears other ranks in other runs.
-- @column verdict VARCHAR | recurring: slow in at least half of 3 or more runs; ok; not_comparable with fewer.
-- @column slow_runs BIGINT runs | Runs in which it was slow.
-- @column runs BIGINT runs | The latest runs of the configuration in which it was compared, 20 at most, by date and run_id, those without a date first.
-- @column slowdown DOUBLE | Largest slowdown of its ranks, median over the runs.
-- @column time_lost_ms DOUBLE ms | Time that the worst of its slow ranks lost, summed over the runs in which it was slow.
-- @column gpu_hours_lost DOUBLE GPU hours | That time on every rank of the job; NULL where the size of one of these jobs is unknown.
-- @column last_slow_run VARCHAR | The latest run in which it was slow.
-- @column slow_run_ids VARCHAR[] | Runs in which it was slow, the latest first.
-- @column evidence VARCHAR | What was seen, in one sentence, of what was slow.
WITH seen AS (
    SELECT
        r.config,
        s.host,
        CASE WHEN s.host IS NOT NULL THEN s.device END AS device,
        CASE WHEN s.host IS NULL THEN s.rank END AS rank,
        r.run_date,
        r.run_id,
        r.world_size,
        s.rank AS run_rank,
        s.slowdown,
        s.time_lost_ms,
        s.verdict IN ('straggler', 'suspect') AS slow
    FROM straggler_ranks AS s
    JOIN _fleet_runs AS r USING (run_id)
    WHERE s.verdict <> 'not_comparable' AND r.config IS NOT NULL
),
latest AS (
    SELECT
        config, host, device, rank, run_date, run_id, world_size,
        max(slowdown) AS slowdown,
        bool_or(slow) AS slow,
        coalesce(max(time_lost_ms) FILTER (slow), 0) AS lost_ms,
        arg_min(run_rank, (-slowdown, run_rank)) FILTER (slow) AS slow_rank
    FROM seen
    GROUP BY config, host, device, rank, run_date, run_id, world_size
    QUALIFY row_number() OVER (
        PARTITION BY config, host, device, rank ORDER BY run_date DESC NULLS LAST, run_id DESC
    ) <= 20
),
subjects AS (
    SELECT
        config, host, device, rank,
        count(*) AS runs,
        count(*) FILTER (slow) AS slow_runs,
        quantile_cont(slowdown, 0.5) AS slowdown,
        ordered_sum(lost_ms) AS time_lost_ms,
        CASE WHEN count(world_size) FILTER (slow) = count(*) FILTER (slow)
            THEN coalesce(ordered_sum(world_size * lost_ms / 3.6e6), 0)
        END AS gpu_hours_lost,
        coalesce(
            list(run_id ORDER BY run_date DESC NULLS LAST, run_id DESC) FILTER (slow), []
        ) AS slow_run_ids,
        list(slow_rank ORDER BY run_date DESC NULLS LAST, run_id DESC) FILTER (slow) AS slow_ranks
    FROM latest
    GROUP BY config, host, device, rank
)
SELECT
    config,
    concat_ws(' ', 'host ' || host, 'device ' || device, 'rank ' || rank) AS subject,
    host,
    device,
    rank,
    CASE
        WHEN runs < 3 THEN 'not_comparable'
        WHEN 2 * slow_runs >= runs THEN 'recurring'
        ELSE 'ok'
    END AS verdict,
    slow_runs,
    runs,
    slowdown,
    time_lost_ms,
    gpu_hours_lost,
    slow_run_ids[1] AS last_slow_run,
    slow_run_ids,
    CASE WHEN slow_runs > 0 THEN format(
        'Slow in {} of {} runs, last in {} as rank {}; it took {:.2f} times as long as its peers'
            || ' in the median run.',
        slow_runs, runs, slow_run_ids[1], slow_ranks[1], slowdown
    ) END AS evidence,
    CASE WHEN runs < 3 THEN 'few_runs' END AS reason
FROM subjects
