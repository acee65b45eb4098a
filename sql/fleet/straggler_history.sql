-- Ranks, devices or hosts of a configuration, and in how many of its latest runs they were slow.
-- A subject is a device where host and device of a rank are known, a host where only that is, else
-- a rank. Slow in a run: one of its ranks is a straggler or a suspect there. With one peer one of
-- two is slow whenever noise passes the bound: such runs count where a coin would not do as well.
-- @scope fleet
-- @grain config, host?, device?, rank?
-- @column subject VARCHAR | The device, host or rank, in words.
-- @column rank INTEGER | The rank where no host is known; a host or device bears other ranks in other runs.
-- @column verdict VARCHAR | recurring: slow in at least half of 3 or more runs, or in each of the latest 3; with one peer in so many that a coin has a chance under 1 %; ok; not_comparable with fewer runs, or where one peer leaves it open.
-- @column slow_runs BIGINT runs | Runs in which it was slow.
-- @column runs BIGINT runs | The latest runs of the configuration in which it was compared, 20 at most, by date and run_id, those without a date first.
-- @column slowdown DOUBLE | Largest slowdown of its slow ranks, median over the runs in which it was slow; NULL where it was slow in none.
-- @column time_lost_ms DOUBLE ms | Time that the worst of its slow ranks lost, summed over the runs in which it was slow.
-- @column gpu_hours_lost DOUBLE GPU hours | That time on every rank of the job; NULL where the size of one of these jobs is unknown.
-- @column last_slow_run VARCHAR | The latest run in which it was slow.
-- @column slow_run_ids VARCHAR[] | Runs in which it was slow, the latest first.
-- @column evidence VARCHAR | What was seen, in one sentence, of what was slow.
-- @column peers BIGINT ranks | Peers of its ranks in the run that had most.
-- @column slow_ranks INTEGER[] | Its ranks that were slow in these runs.
-- @column first_slow_run VARCHAR | The first slow run of the latest series: after 3 runs in a row that were ok a new one begins. It may be older than the 20 runs.
-- @column since TIMESTAMP | Date of that run.
WITH subjects AS (
    SELECT
        config, host, device, rank,
        count(*) AS runs,
        count(*) FILTER (slow) AS slow_runs,
        count(*) FILTER (age <= 3 AND slow) = 3 AS slow_lately,
        max(peers) AS peers,
        max(ranks) AS ranks,
        quantile_cont(slowdown, 0.5) AS slowdown,
        quantile_cont(worst.forward_slowdown, 0.5) AS forward_slowdown,
        quantile_cont(worst.backward_slowdown, 0.5) AS backward_slowdown,
        2 * count(*) FILTER (worst.kind = 'forward') > slow_runs AS forward,
        min(worst.op) FILTER (worst.kind = 'forward') AS forward_op,
        min(worst.op) FILTER (worst.kind = 'backward') AS backward_op,
        min(worst.op) AS any_op,  -- all that a trace without passes has
        ordered_sum(lost_ms) AS time_lost_ms,
        CASE WHEN count(world_size) FILTER (slow) = slow_runs
            THEN coalesce(ordered_sum(world_size * lost_ms / 3.6e6), 0)
        END AS gpu_hours_lost,
        coalesce(list(run_id ORDER BY age) FILTER (slow), []) AS slow_run_ids,
        coalesce(flatten(list(slow_ranks) FILTER (slow)), []) AS slow_rank_runs,
        arg_min(first_slow, age) FILTER (slow) AS first_slow
    FROM _subject_runs
    WHERE age <= 20
    GROUP BY config, host, device, rank
),
judged AS (
    SELECT
        *,
        list_sort(list_distinct(slow_rank_runs)) AS slow_ranks,
        2 * slow_runs >= runs AS slow_often,
        -- In a host of several ranks one of a pair is always slow: it has to be the same one.
        CASE WHEN ranks = 1 THEN slow_runs ELSE coalesce(
            list_max(list_transform(
                slow_ranks, lambda one: len(list_filter(slow_rank_runs, lambda r: r = one))
            )), 0
        ) END AS alike_runs,
        CASE
            WHEN runs < 3 THEN 'few_runs'
            WHEN peers = 1 AND (slow_often OR slow_lately) AND coin_chance(alike_runs, runs) >= 0.01
                THEN 'one_peer'
        END AS reason
    FROM subjects
)
SELECT
    config,
    concat_ws(' ', 'host ' || host, 'device ' || device, 'rank ' || rank) AS subject,
    host,
    device,
    rank,
    CASE
        WHEN reason IS NOT NULL THEN 'not_comparable'
        WHEN slow_often OR slow_lately THEN 'recurring'
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
        '{}{}: {} took {:.2f} times as long as {} in {} of its latest {} runs, last in {}.',
        subject,
        CASE WHEN rank IS NULL THEN format(
            ' ({} {})',
            CASE len(slow_ranks) WHEN 1 THEN 'rank' ELSE 'ranks' END,
            array_to_string(slow_ranks, ', ')
        ) ELSE '' END,
        coalesce(CASE WHEN forward THEN forward_op ELSE backward_op END, any_op),
        coalesce(CASE WHEN forward THEN forward_slowdown ELSE backward_slowdown END, slowdown),
        peers_named(peers),
        slow_runs, runs, slow_run_ids[1]
    ) END AS evidence,
    reason,
    peers,
    slow_ranks,
    first_slow.run_id AS first_slow_run,
    first_slow.run_date AS since
FROM judged
