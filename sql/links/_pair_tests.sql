-- Every tested pair of hosts at one size of its kind of test, and whether it is slow there.
-- The size is that of the latest tests of most pairs, of equal ones the largest.
-- The reference is the 90th percentile of the pairs; slow is below 0.8 of it, or never ended.
-- @internal
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, host, peer_host
-- @column cluster VARCHAR | Least host of the cluster.
-- @column ranks_per_host BIGINT ranks | Ranks of the test on each host.
-- @column peer_host VARCHAR | The other host.
-- @column size_bytes BIGINT bytes | That size.
-- @column reference_gbps DOUBLE GB/s | 90th percentile over the pairs.
-- @column tests BIGINT tests | Tests of the pair.
-- @column unfinished BIGINT tests | Its latest test never ended.
-- @column run_id VARCHAR | Run of the latest test.
-- @column slow_dates TIMESTAMP[] | Of a slow pair the dates of its present row of slow tests, the latest first.
-- @column ok_until TIMESTAMP | Of a slow pair the date of the latest test that is not slow; NULL without one.
-- @column slow BOOLEAN | Below 0.8 of the reference, or unfinished; NULL with fewer than 6 pairs.
WITH counted AS (
    SELECT
        *,
        count(CASE WHEN newest THEN 1 END) OVER (
            PARTITION BY cluster, collective, ranks_per_host, size_bytes
        ) AS newest_pairs
    FROM _host_tests
),
largest AS (
    SELECT
        *,
        max(CASE WHEN size_bytes IS NOT NULL THEN (newest_pairs, size_bytes) END) OVER (
            PARTITION BY cluster, collective, ranks_per_host
        )[2] AS largest_bytes
    FROM counted
),
pairs AS (
    SELECT
        cluster, collective, ranks_per_host, host, peer_host,
        any_value(largest_bytes) AS size_bytes,
        max(busbw_gbps) FILTER (size_bytes = largest_bytes) AS busbw_gbps,
        max(tests) AS tests,
        max(unfinished) AS unfinished,
        coalesce(
            any_value(run_id) FILTER (unfinished = 1), any_value(run_id) FILTER (size_bytes = largest_bytes)
        ) AS run_id,
        any_value(history) FILTER (size_bytes = largest_bytes) AS history
    FROM largest
    GROUP BY cluster, collective, ranks_per_host, host, peer_host
    HAVING busbw_gbps IS NOT NULL OR max(unfinished) = 1
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
                list_transform(history, lambda test: NOT test.cut AND test.busbw_gbps >= least_gbps), true
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
