-- Hosts that slow pairs are blamed on, by removal.
-- The host with the largest share of slow pairs, over half and of 3 or more tested, goes with its
-- pairs, and so on; tied hosts go together.
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, host
-- @column turn INTEGER | In which turn it went, from 1.
WITH RECURSIVE judged AS (
    SELECT
        p.cluster, p.collective, p.ranks_per_host,
        list({'a': p.host, 'b': p.peer_host, 'slow': p.slow} ORDER BY p.host, p.peer_host) AS pairs
    FROM _pair_tests AS p
    LEFT JOIN _host_parts AS a USING (cluster, collective, ranks_per_host, host)
    LEFT JOIN _host_parts AS b
        ON b.cluster = p.cluster AND b.collective = p.collective
        AND b.ranks_per_host = p.ranks_per_host AND b.host = p.peer_host
    LEFT JOIN _link_classes AS c
        ON c.cluster = p.cluster AND c.collective = p.collective
        AND c.ranks_per_host = p.ranks_per_host
        AND c.part = least(a.part, b.part) AND c.peer_part = greatest(a.part, b.part)
    WHERE p.slow IS NOT NULL AND c.part IS NULL
    GROUP BY p.cluster, p.collective, p.ranks_per_host
),
turns AS (
    SELECT cluster, collective, ranks_per_host, pairs, []::VARCHAR[] AS gone, 0 AS turn FROM judged
    UNION ALL
    SELECT
        cluster, collective, ranks_per_host,
        list_filter(pairs, lambda p: NOT list_contains(now, p.a) AND NOT list_contains(now, p.b)),
        now,
        turn + 1
    FROM (
        SELECT
            * EXCLUDE (gone),
            list_distinct(flatten(list_transform(pairs, lambda p: [p.a, p.b]))) AS hosts,
            list_transform(hosts, lambda h: {
                'host': h,
                'tested': len(list_filter(pairs, lambda p: p.a = h OR p.b = h)),
                'slow': len(list_filter(pairs, lambda p: (p.a = h OR p.b = h) AND p.slow))
            }) AS shares,
            list_filter(shares, lambda s: s.tested >= 3 AND 2 * s.slow > s.tested) AS suspects,
            list_max(list_transform(suspects, lambda s: s.slow / s.tested)) AS worst,
            list_transform(
                list_filter(suspects, lambda s: s.slow / s.tested = worst), lambda s: s.host
            ) AS now
        FROM turns
    ) AS step
    WHERE len(now) > 0
)
SELECT cluster, collective, ranks_per_host, unnest(gone) AS host, turn
FROM turns
WHERE turn > 0
