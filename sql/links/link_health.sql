-- Which hosts and links are slow in bandwidth tests of two hosts.
-- Verdicts are given at one size of a collective and number of ranks per host: the largest that four
-- fifths as many latest tests reach as any other one. The reference is the 90th percentile of the pairs there.
-- A cluster is the hosts that any test joins.
-- @report Links: bandwidth tests
-- @scope fleet
-- @grain cluster, scope, subject, collective, size_bytes, ranks_per_host
-- @column cluster VARCHAR | Least host of the hosts that tests join, directly or through others.
-- @column scope VARCHAR | pair, host, or class: all links between two parts of the cluster.
-- @column subject VARCHAR | `a - b`, `a`, or `a.. | b..` with the least host of each part.
-- @column host VARCHAR | The host; of a pair or class the least one of its first side.
-- @column peer_host VARCHAR | The other host of a pair, the least host of the other part of a class.
-- @column link_class VARCHAR | Class that the pair belongs to, where all links between two parts are slow.
-- @column ranks_per_host BIGINT ranks | Ranks of the test on each host.
-- @column tests BIGINT tests | Tests of the pair; of a host or class the pairs' sum.
-- @column unfinished BIGINT tests | Tests that began and never ended; they count as slow.
-- @column busbw_gbps DOUBLE GB/s | Bus bandwidth out of place of the latest test; of a host or class the median of its pairs. NULL where it never ended.
-- @column reference_gbps DOUBLE GB/s | 90th percentile of the pairs at this size.
-- @column ratio DOUBLE | busbw over the reference; slow is below 0.8.
-- @column verdict VARCHAR | Pairs: ok, slow_pair (alone), slow_host (a slow host explains it), link_class, other_size, few_tests (under 6 pairs). Hosts: slow, ok, few_tests. Classes: link_class.
WITH placed AS (
    SELECT p.*, c.link_class, a.host IS NOT NULL OR b.host IS NOT NULL AS blamed
    FROM _pair_tests AS p
    LEFT JOIN _host_parts AS x USING (cluster, collective, ranks_per_host, host)
    LEFT JOIN _host_parts AS y
        ON y.cluster = p.cluster AND y.collective = p.collective
        AND y.ranks_per_host = p.ranks_per_host AND y.host = p.peer_host
    LEFT JOIN _link_classes AS c
        ON c.cluster = p.cluster AND c.collective = p.collective
        AND c.ranks_per_host = p.ranks_per_host
        AND c.part = least(x.part, y.part) AND c.peer_part = greatest(x.part, y.part)
    LEFT JOIN _blamed_hosts AS a USING (cluster, collective, ranks_per_host, host)
    LEFT JOIN _blamed_hosts AS b
        ON b.cluster = p.cluster AND b.collective = p.collective
        AND b.ranks_per_host = p.ranks_per_host AND b.host = p.peer_host
),
ends AS (
    SELECT *, unnest([host, peer_host]) AS one FROM placed
),
others AS (
    SELECT
        t.*,
        quantile_cont(t.busbw_gbps, 0.9) OVER (
            PARTITION BY t.cluster, t.collective, t.ranks_per_host, t.size_bytes
        ) AS reference_gbps
    FROM _host_tests AS t
    ANTI JOIN _pair_tests AS p USING (cluster, collective, ranks_per_host, size_bytes)
    WHERE t.size_bytes IS NOT NULL
),
every AS (
    SELECT
        cluster, 'pair' AS scope, concat(host, ' - ', peer_host) AS subject, host, peer_host,
        link_class, collective, size_bytes, ranks_per_host, tests, unfinished, busbw_gbps,
        reference_gbps,
        CASE
            WHEN slow IS NULL THEN 'few_tests'
            WHEN NOT slow THEN 'ok'
            WHEN link_class IS NOT NULL THEN 'link_class'
            WHEN blamed THEN 'slow_host'
            ELSE 'slow_pair'
        END AS verdict
    FROM placed
    UNION ALL
    SELECT
        e.cluster, 'host', e.one, e.one, NULL, NULL, e.collective, any_value(e.size_bytes),
        e.ranks_per_host, sum(e.tests)::BIGINT, sum(e.unfinished)::BIGINT, median(e.busbw_gbps),
        any_value(e.reference_gbps),
        CASE
            WHEN bool_or(e.slow IS NULL) THEN 'few_tests'
            WHEN bool_or(h.host IS NOT NULL) THEN 'slow'
            ELSE 'ok'
        END
    FROM ends AS e
    LEFT JOIN _blamed_hosts AS h
        ON h.cluster = e.cluster AND h.collective = e.collective
        AND h.ranks_per_host = e.ranks_per_host AND h.host = e.one
    GROUP BY e.cluster, e.collective, e.ranks_per_host, e.one
    UNION ALL
    SELECT
        c.cluster, 'class', c.link_class, c.part, c.peer_part, c.link_class, c.collective,
        any_value(p.size_bytes), c.ranks_per_host, any_value(c.tests), any_value(c.unfinished),
        any_value(c.busbw_gbps), any_value(p.reference_gbps), 'link_class'
    FROM _link_classes AS c
    JOIN _pair_tests AS p USING (cluster, collective, ranks_per_host)
    GROUP BY c.cluster, c.link_class, c.part, c.peer_part, c.collective, c.ranks_per_host
    UNION ALL
    SELECT
        cluster, 'pair', concat(host, ' - ', peer_host), host, peer_host, NULL, collective,
        size_bytes, ranks_per_host, tests, unfinished, busbw_gbps, reference_gbps, 'other_size'
    FROM others
)
SELECT * EXCLUDE (verdict), ratio(busbw_gbps, reference_gbps) AS ratio, verdict
FROM every
WHERE size_bytes IS NOT NULL
