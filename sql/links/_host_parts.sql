-- Hosts of a kind of test by the part they fall into: hosts that pairs which are not slow join.
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, host
-- @column part VARCHAR | Least host of the part.
-- @column part_hosts BIGINT hosts | Hosts of the part.
WITH RECURSIVE ends AS (
    SELECT
        cluster, collective, ranks_per_host, slow,
        unnest([host, peer_host]) AS host, unnest([peer_host, host]) AS peer_host
    FROM _pair_tests
    WHERE slow IS NOT NULL
),
labels(cluster, collective, ranks_per_host, host, part)
USING KEY (cluster, collective, ranks_per_host, host) AS (
    SELECT DISTINCT cluster, collective, ranks_per_host, host, host FROM ends
    UNION
    SELECT e.cluster, e.collective, e.ranks_per_host, e.peer_host, min(l.part)
    FROM labels AS l
    JOIN ends AS e USING (cluster, collective, ranks_per_host, host)
    JOIN recurring.labels AS known
        ON known.cluster = e.cluster AND known.collective = e.collective
        AND known.ranks_per_host = e.ranks_per_host AND known.host = e.peer_host
    WHERE NOT e.slow AND l.part < known.part
    GROUP BY e.cluster, e.collective, e.ranks_per_host, e.peer_host
)
SELECT
    *,
    count(*) OVER (PARTITION BY cluster, collective, ranks_per_host, part) AS part_hosts
FROM labels
