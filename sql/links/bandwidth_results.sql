-- Every result of a bandwidth test, with what it recomputes to and how many ranks a host had.
-- @grain run_id, line, placement
-- @column collective VARCHAR | As printed or named by the file, unless busbw / algbw of 3 or more ranks says another one; else known by that and redop, with 3 or more ranks; else NULL.
-- @column algbw_computed_gbps DOUBLE GB/s | size_bytes / time_ns; off by as much as the printed time is rounded.
-- @column busbw_computed_gbps DOUBLE GB/s | The same times the collective's factor.
-- @column time_ms DOUBLE ms | Time of one operation, as printed.
-- @column nodes BIGINT hosts | Hosts of the test.
-- @column ranks_per_host BIGINT ranks | Ranks on each host; NULL where hosts have different numbers.
WITH shown AS (
    -- Bandwidths have two decimals: the largest tells the factor best.
    SELECT run_id, test, arg_max(busbw_gbps / nullif(algbw_gbps, 0), algbw_gbps) AS factor
    FROM bandwidth_tests
    WHERE algbw_gbps >= 1
    GROUP BY run_id, test
),
known AS (
    SELECT
        t.* EXCLUDE (collective, hosts),
        t.hosts,
        len(list_distinct(t.hosts)) AS nodes,
        list_max(map_values(list_histogram(t.hosts))) AS most,
        coalesce(
            -- Names of files and commands may be of other tests; of a hypercube algbw counts what is sent, like busbw.
            CASE WHEN t.ranks < 3 OR (abs(s.factor / nullif(
                if(t.collective = 'hypercube', 1, bus_factor(t.collective, t.ranks)), 0
            ) - 1) < 0.02) IS NOT FALSE THEN t.collective END,
            CASE
                WHEN t.redop IS NULL OR t.ranks < 3 THEN NULL
                WHEN abs(s.factor / bus_factor('all_reduce', t.ranks) - 1) < 0.02 THEN 'all_reduce'
                WHEN abs(s.factor / bus_factor('reduce_scatter', t.ranks) - 1) < 0.02
                    THEN 'reduce_scatter'
            END
        ) AS collective
    FROM bandwidth_tests AS t
    LEFT JOIN shown AS s USING (run_id, test)
)
SELECT
    run_id,
    line,
    placement,
    test,
    collective,
    size_bytes,
    dtype,
    ns_to_ms(time_ns) AS time_ms,
    algbw_gbps,
    busbw_gbps,
    size_bytes / nullif(time_ns, 0) AS algbw_computed_gbps,
    CASE WHEN collective IS NOT NULL
        THEN size_bytes / nullif(time_ns, 0) * bus_factor(collective, ranks)
    END AS busbw_computed_gbps,
    wrong,
    ranks,
    nodes,
    CASE WHEN most * nodes = ranks THEN ranks // nodes END AS ranks_per_host,
    hosts
FROM known
