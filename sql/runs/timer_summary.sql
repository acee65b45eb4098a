-- Timers that a training log prints: how long each takes, how far ranks are apart in it, and which rank is the slowest.
-- Medians over the records that have the timer, the first step left out where there are others. Timers
-- nest and overlap, and most are times of the host: they say where to look, and are no verdict on a device.
-- @report Timers of the log
-- @grain run_id, name
-- @column name VARCHAR | The timer, as printed.
-- @column basis VARCHAR | ranks: several ranks print it; min_max: the log has the least and greatest over ranks; one_rank: only one rank prints it.
-- @column clock VARCHAR | host, or barrier: ranks wait for each other before it.
-- @column records BIGINT | Records that have it; 1 for timers of the start.
-- @column ranks BIGINT ranks | Ranks that print it; NULL where only least and greatest are known.
-- @column max_ms DOUBLE ms | Of the slowest rank.
-- @column min_ms DOUBLE ms | Of the fastest rank.
-- @column spread_ms DOUBLE ms | The slowest less the fastest rank: at most this would equal ranks save.
-- @column share_ratio DOUBLE | max_ms over the median step.
-- @column spread_share_ratio DOUBLE | spread_ms over the median step.
-- @column slowest_rank INTEGER | Rank that is the slowest in most records, the lowest of equal ones.
-- @column slowest_stage INTEGER | Its pipeline stage.
-- @column slowest_records BIGINT | Records in which it is the slowest.
-- @column reason VARCHAR | no_peer: one rank alone, so there is no spread.
-- @column share_reason VARCHAR | no_record: the timer belongs to no step, or the log has no times of steps.
WITH kept AS (
    SELECT *
    FROM timings
    QUALIFY first_step IS NULL OR first_step > 1 OR NOT bool_or(coalesce(first_step > 1, false)) OVER (
        PARTITION BY run_id, name
    )
),
records AS (
    SELECT
        run_id,
        name,
        last_step,
        any_value(clock) AS clock,
        max(duration_ns) FILTER (statistic IN ('own', 'max')) AS longest_ns,
        min(duration_ns) FILTER (statistic IN ('own', 'min')) AS shortest_ns,
        bool_or(statistic IN ('min', 'max')) AS across,
        count(DISTINCT rank) FILTER (statistic = 'own') AS ranks,
        arg_min(rank, (-duration_ns, rank)) FILTER (
            rank IS NOT NULL AND statistic IN ('own', 'max')
        ) AS slowest_rank
    FROM kept
    GROUP BY run_id, name, last_step
),
turns AS (
    SELECT run_id, name, slowest_rank, count(*) AS records
    FROM records
    WHERE slowest_rank IS NOT NULL AND (across OR ranks > 1)
    GROUP BY run_id, name, slowest_rank
),
slowest AS (
    SELECT
        run_id, name,
        arg_min(slowest_rank, (-records, slowest_rank)) AS slowest_rank,
        max(records) AS slowest_records
    FROM turns
    GROUP BY run_id, name
),
timers AS (
    SELECT
        run_id,
        name,
        CASE
            WHEN bool_or(across) THEN 'min_max'
            WHEN max(ranks) > 1 THEN 'ranks'
            ELSE 'one_rank'
        END AS basis,
        min(clock) AS clock,
        count(*) AS records,
        CASE WHEN basis = 'ranks' THEN max(ranks) WHEN basis = 'one_rank' THEN 1 END AS ranks,
        ns_to_ms(quantile_cont(longest_ns, 0.5)) AS max_ms,
        ns_to_ms(quantile_cont(shortest_ns, 0.5)) AS min_ms,
        CASE WHEN basis <> 'one_rank'
            THEN ns_to_ms(quantile_cont(longest_ns::DOUBLE - shortest_ns, 0.5))
        END AS spread_ms,
        bool_or(last_step IS NOT NULL) AS in_steps
    FROM records
    GROUP BY run_id, name
)
SELECT
    t.run_id,
    t.name,
    t.basis,
    t.clock,
    t.records,
    t.ranks,
    t.max_ms,
    t.min_ms,
    t.spread_ms,
    CASE WHEN t.in_steps THEN ratio(t.max_ms, s.step_p50_ms) END AS share_ratio,
    CASE WHEN t.in_steps THEN ratio(t.spread_ms, s.step_p50_ms) END AS spread_share_ratio,
    w.slowest_rank,
    (w.slowest_rank // ranks_per_stage(r.world_size, r.pp))::INTEGER AS slowest_stage,
    w.slowest_records,
    CASE t.basis WHEN 'one_rank' THEN 'no_peer' END AS reason,
    CASE WHEN s.step_p50_ms IS NULL OR NOT t.in_steps THEN 'no_record' END AS share_reason
FROM timers AS t
LEFT JOIN slowest AS w USING (run_id, name)
LEFT JOIN _run_spans AS s USING (run_id)
JOIN runs AS r USING (run_id)
