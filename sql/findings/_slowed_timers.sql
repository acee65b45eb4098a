-- Timer of the log in which ranks came apart most when the steps became slower: some are slow, not all.
-- @grain run_id
-- @column name VARCHAR | The timer, as printed.
-- @column rank INTEGER | The slowest rank in most records from then on; NULL where the log does not say.
-- @column longest_before_ms DOUBLE ms | Of the slowest rank, median of the records before.
-- @column longest_ms DOUBLE ms | The same from then on.
-- @column shortest_before_ms DOUBLE ms | Of the fastest rank, before.
-- @column shortest_ms DOUBLE ms | The same from then on.
WITH records AS (
    SELECT
        t.run_id, t.name, t.last_step,
        any_value(w.after_ms - w.before_ms) AS change_ms,
        -- A record over steps of both parts is of neither.
        any_value(CASE
            WHEN t.first_step >= w.since_step THEN true
            WHEN t.last_step < w.since_step AND t.first_step > 1 THEN false
        END) AS after,
        max(t.duration_ns) FILTER (t.statistic IN ('own', 'max')) AS longest_ns,
        min(t.duration_ns) FILTER (t.statistic IN ('own', 'min')) AS shortest_ns,
        arg_min(t.rank, (-t.duration_ns, t.rank)) FILTER (
            t.rank IS NOT NULL AND t.statistic IN ('own', 'max')
        ) AS rank
    FROM timings AS t
    JOIN _slowed_runs AS w USING (run_id)
    GROUP BY t.run_id, t.name, t.last_step
),
timers AS (
    SELECT
        run_id, name,
        any_value(change_ms) AS change_ms,
        mode(rank) FILTER (after) AS rank,
        ns_to_ms(median(longest_ns) FILTER (NOT after)) AS longest_before_ms,
        ns_to_ms(median(longest_ns) FILTER (after)) AS longest_ms,
        ns_to_ms(median(shortest_ns) FILTER (NOT after)) AS shortest_before_ms,
        ns_to_ms(median(shortest_ns) FILTER (after)) AS shortest_ms,
        longest_ms - longest_before_ms - greatest(0, shortest_ms - shortest_before_ms) AS apart_ms
    FROM records
    GROUP BY run_id, name
    HAVING count(*) FILTER (after) >= 3 AND count(*) FILTER (NOT after) >= 3
)
SELECT run_id, name, rank, longest_before_ms, longest_ms, shortest_before_ms, shortest_ms
FROM timers
WHERE apart_ms >= 0.25 * change_ms
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY apart_ms DESC, name) = 1
