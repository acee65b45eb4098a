-- Bandwidth that a run's collectives achieve, beside what tests on as many ranks and nodes attain.
-- Of each collective the kind of call with the most bytes; the tests are those of hosts that the run
-- is on, else of its fabric. Where the hosts of a group are unknown, all tests of the fabric on as many
-- ranks must have the same number of hosts. The bandwidth at a size lies on a line between the next
-- sizes, in log-log.
-- @report Achieved and attainable bandwidth
-- @scope fleet
-- @grain run_id, collective
-- @column size_bytes BIGINT bytes | Size of the calls.
-- @column group_size INTEGER ranks | Members of the group.
-- @column nodes BIGINT hosts | Hosts of the group; of its tests where only the fabric tells.
-- @column calls BIGINT calls | Calls of that kind.
-- @column achieved_gbps DOUBLE GB/s | Median bus bandwidth of the calls.
-- @column attainable_gbps DOUBLE GB/s | Bus bandwidth of the tests at this size, out of place: the median over tests.
-- @column efficiency_ratio DOUBLE | Achieved over attainable.
-- @column matched_by VARCHAR | hosts or fabric: what joins the run and its tests; NULL without a test.
WITH kinds AS (
    SELECT
        b.run_id, b.collective, b.group_kind, b.size_bytes, b.calls, b.reason,
        b.busbw_p50_gbps AS achieved_gbps,
        coalesce(b.group_size, g.group_size) AS group_size,
        g.nodes,
        r.fabric
    FROM collective_bandwidth AS b
    JOIN runs AS r USING (run_id)
    LEFT JOIN _group_nodes AS g USING (run_id, group_kind)
    WHERE NOT b.overlapped
    QUALIFY row_number() OVER (
        PARTITION BY b.run_id, b.collective
        ORDER BY
            b.busbw_p50_gbps IS NULL, b.calls::HUGEINT * coalesce(b.size_bytes, 0) DESC,
            b.group_kind, b.dtype, b.size_bytes
    ) = 1
),
places AS (
    SELECT run_id, list(DISTINCT host) AS hosts FROM sources WHERE host IS NOT NULL GROUP BY run_id
),
originals AS (
    SELECT run_id, fabric FROM runs ANTI JOIN _run_copies USING (run_id)
),
tests AS (
    SELECT
        CASE t.collective WHEN 'sendrecv' THEN 'send' ELSE t.collective END AS collective,
        t.ranks, t.nodes, t.hosts, t.size_bytes, t.busbw_gbps, o.fabric
    FROM bandwidth_results AS t
    JOIN originals AS o USING (run_id)
    WHERE t.placement = 'out' AND t.busbw_gbps > 0 AND t.size_bytes > 0
),
matched AS (
    SELECT
        k.run_id, k.collective, t.size_bytes, t.busbw_gbps, t.nodes,
        coalesce(t.nodes = k.nodes AND list_has_any(t.hosts, p.hosts), false) AS by_hosts
    FROM kinds AS k
    LEFT JOIN places AS p USING (run_id)
    JOIN tests AS t ON t.collective = k.collective AND t.ranks = k.group_size
    WHERE by_hosts OR (t.fabric = k.fabric AND t.nodes = coalesce(k.nodes, t.nodes))
    QUALIFY by_hosts = bool_or(by_hosts) OVER (PARTITION BY k.run_id, k.collective)
),
grounds AS (
    SELECT
        run_id, collective,
        CASE WHEN bool_or(by_hosts) THEN 'hosts' ELSE 'fabric' END AS matched_by,
        CASE WHEN min(nodes) = max(nodes) THEN min(nodes) END AS tested_nodes
    FROM matched
    GROUP BY run_id, collective
),
points AS (
    SELECT run_id, collective, size_bytes, median(busbw_gbps) AS busbw_gbps
    FROM matched
    GROUP BY run_id, collective, size_bytes
),
around AS (
    SELECT
        k.run_id, k.collective,
        count(p.size_bytes) AS sizes,
        max(p.size_bytes) FILTER (p.size_bytes <= k.size_bytes) AS below,
        arg_max(p.busbw_gbps, p.size_bytes) FILTER (p.size_bytes <= k.size_bytes) AS below_gbps,
        min(p.size_bytes) FILTER (p.size_bytes >= k.size_bytes) AS above,
        arg_min(p.busbw_gbps, p.size_bytes) FILTER (p.size_bytes >= k.size_bytes) AS above_gbps
    FROM kinds AS k
    LEFT JOIN points AS p USING (run_id, collective)
    GROUP BY k.run_id, k.collective
),
lines AS (
    SELECT
        *,
        CASE
            WHEN below = above THEN below_gbps
            ELSE exp(
                ln(below_gbps) + (ln(above_gbps) - ln(below_gbps))
                * (ln(size_bytes) - ln(below)) / (ln(above) - ln(below))
            )
        END AS between_gbps,
        CASE
            WHEN achieved_gbps IS NULL THEN coalesce(kinds.reason, 'size_unknown')
            WHEN coalesce(nodes, tested_nodes) IS NULL THEN 'hosts_unknown'
            WHEN sizes = 0 THEN 'not_tested'
            WHEN between_gbps IS NULL THEN 'size_not_tested'
        END AS figure_reason
    FROM kinds
    JOIN around USING (run_id, collective)
    LEFT JOIN grounds USING (run_id, collective)
)
SELECT
    run_id, collective, group_kind, group_size, coalesce(nodes, tested_nodes) AS nodes, size_bytes, calls, achieved_gbps,
    CASE WHEN figure_reason IS NULL THEN between_gbps END AS attainable_gbps,
    CASE WHEN figure_reason IS NULL THEN ratio(achieved_gbps, between_gbps) END AS efficiency_ratio,
    figure_reason AS reason,
    matched_by
FROM lines
