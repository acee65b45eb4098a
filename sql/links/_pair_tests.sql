-- Every tested pair of hosts at one size of its kind of test, and whether it is slow there.
-- The size is the largest that four fifths as many latest tests reach as any other one, so that short
-- tests of few pairs hide none; those that never ended do not count for it.
-- The reference is the 90th percentile of the pairs; slow is below 0.8 of it, or never ended.
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, host, peer_host
-- @column size_bytes BIGINT bytes | That size.
-- @column reference_gbps DOUBLE GB/s | 90th percentile over the pairs.
-- @column tests BIGINT tests | Tests of the pair.
-- @column unfinished BIGINT tests | Its latest test never ended.
-- @column slow_dates TIMESTAMP[] | Of a slow pair the dates of its present row of slow tests, the latest first.
-- @column ok_until TIMESTAMP | Of a slow pair the date of the latest test that is not slow; NULL without one.
-- @column slow BOOLEAN | Below 0.8 of the reference, or unfinished; NULL with fewer than 6 pairs.
WITH counted AS (
    SELECT
        *,
        count(CASE WHEN newest AND unfinished = 0 THEN 1 END) OVER (
            PARTITION BY cluster, collective, ranks_per_host, size_bytes
        ) AS newest_pairs
    FROM _host_tests
),
common AS (
    SELECT
        *,
        max(CASE WHEN size_bytes IS NOT NULL THEN newest_pairs END) OVER kind AS most_pairs,
        max(unfinished) OVER pair AS hung
    FROM counted
    WINDOW kind AS (PARTITION BY cluster, collective, ranks_per_host),
        pair AS (PARTITION BY cluster, collective, ranks_per_host, host, peer_host)
),
sized AS (
    SELECT
        *,
        max(CASE WHEN 5 * newest_pairs >= 4 * most_pairs THEN size_bytes END) OVER (
            PARTITION BY cluster, collective, ranks_per_host
        ) AS largest_bytes
    FROM common
),
-- Of a pair whose latest test never ended, earlier ones say nothing.
latest AS (
    SELECT
        cluster, collective, ranks_per_host, host, peer_host,
        any_value(largest_bytes) AS size_bytes,
        max(busbw_gbps) FILTER (size_bytes = largest_bytes AND (newest OR hung = 0)) AS busbw_gbps,
        max(hung) AS unfinished,
        coalesce(
            any_value(run_id) FILTER (unfinished = 1), any_value(run_id) FILTER (size_bytes = largest_bytes)
        ) AS run_id
    FROM sized
    GROUP BY cluster, collective, ranks_per_host, host, peer_host
    HAVING busbw_gbps IS NOT NULL OR max(hung) = 1
),
past AS (
    SELECT
        cluster, collective, ranks_per_host, host, peer_host,
        count(DISTINCT (test.run_id, test.test)) FILTER (size_bytes = largest_bytes OR hung = 1 AND test.cut)
            AS tests,
        list(
            test ORDER BY test.run_date DESC NULLS LAST, test.run_id DESC, test.test DESC, test.busbw_gbps DESC
        ) FILTER (size_bytes = largest_bytes OR test.cut) AS history
    FROM (SELECT *, unnest(history) AS test FROM sized)
    GROUP BY cluster, collective, ranks_per_host, host, peer_host
),
pairs AS (
    SELECT * FROM latest JOIN past USING (cluster, collective, ranks_per_host, host, peer_host)
),
judged AS (
    SELECT
        *,
        quantile_cont(busbw_gbps, 0.9) OVER kind AS reference_gbps,
        0.8 * reference_gbps AS least_gbps,
        count(*) OVER kind AS pairs
    FROM pairs
    WINDOW kind AS (PARTITION BY cluster, collective, ranks_per_host)
),
marked AS (
    SELECT
        *,
        CASE WHEN pairs >= 6
            THEN unfinished = 1 OR coalesce(busbw_gbps < least_gbps, true)
        END AS slow,
        CASE WHEN slow THEN coalesce(
            list_position(
                list_transform(history, lambda test: NOT test.cut AND coalesce(test.busbw_gbps >= least_gbps, true)), true
            ),
            len(history) + 1
        ) END AS ok_place
    FROM judged
)
SELECT
    * EXCLUDE (pairs, history, least_gbps, ok_place),
    list_transform(history[:ok_place - 1], lambda test: test.run_date) AS slow_dates,
    history[ok_place].run_date AS ok_until
FROM marked
