-- Each rank, device or host of a configuration in each run in which it was compared.
-- @scope fleet
-- @grain config, host?, device?, rank?, run_id
-- @column rank INTEGER | The rank where no host is known.
-- @column ranks BIGINT | Its ranks that were compared.
-- @column peers BIGINT | Peers of the one that had most.
-- @column slow BOOLEAN | One of its ranks is a straggler or a suspect.
-- @column slowdown DOUBLE | The largest of its slow ranks.
-- @column lost_ms DOUBLE | Time that the worst of its slow ranks lost.
-- @column slow_ranks INTEGER[] | Its slow ranks.
-- @column worst STRUCT(op VARCHAR, kind VARCHAR, forward_slowdown DOUBLE, backward_slowdown DOUBLE) | Of the slowest of them: the operation that is slower, and how slow each is.
-- @column age BIGINT | 1 is the latest run by date and run_id, those without a date are the oldest.
-- @column first_slow STRUCT(run_id VARCHAR, run_date TIMESTAMP) | The first slow run of the series: after 3 runs in a row that were ok a new one begins.
WITH seen AS (
    SELECT
        r.config,
        s.host,
        CASE WHEN s.host IS NOT NULL THEN s.device END AS device,
        CASE WHEN s.host IS NULL THEN s.rank END AS rank,
        r.run_date,
        r.run_id,
        r.world_size,
        s.* EXCLUDE (host, device, rank, run_id),
        s.rank AS run_rank,
        s.verdict IN ('straggler', 'suspect') AS slow
    FROM straggler_ranks AS s
    JOIN _fleet_runs AS r USING (run_id)
    WHERE s.verdict <> 'not_comparable' AND r.config IS NOT NULL
),
by_run AS (
    SELECT
        config, host, device, rank, run_date, run_id, world_size,
        count(*) AS ranks,
        max(peers) AS peers,
        bool_or(slow) AS slow,
        max(slowdown) FILTER (slow) AS slowdown,
        coalesce(max(time_lost_ms) FILTER (slow), 0) AS lost_ms,
        list(run_rank) FILTER (slow) AS slow_ranks,
        arg_min(
            {
                'op': slowest_op, 'kind': slowest_kind,
                'forward_slowdown': forward_slowdown, 'backward_slowdown': backward_slowdown
            },
            (-slowdown, run_rank)
        ) FILTER (slow) AS worst
    FROM seen
    GROUP BY config, host, device, rank, run_date, run_id, world_size
),
placed AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY config, host, device, rank ORDER BY run_date DESC NULLS LAST, run_id DESC
        ) AS age,
        NOT (slow OR lag(slow) OVER series OR lag(slow, 2) OVER series) AS cleared
    FROM by_run
    WINDOW series AS (
        PARTITION BY config, host, device, rank ORDER BY run_date NULLS FIRST, run_id
    )
),
numbered AS (
    SELECT
        *,
        count(CASE WHEN cleared THEN 1 END) OVER (
            PARTITION BY config, host, device, rank ORDER BY age DESC
        ) AS number
    FROM placed
)
SELECT
    config, host, device, rank, run_id, run_date, world_size, ranks, peers, slow, slowdown, lost_ms,
    slow_ranks, worst, age,
    arg_max({'run_id': run_id, 'run_date': run_date}, age) FILTER (slow) OVER (
        PARTITION BY config, host, device, rank, number
    ) AS first_slow
FROM numbered
