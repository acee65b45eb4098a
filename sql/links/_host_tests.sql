-- Tests between two hosts, out of place: the latest of each size, and those that never ended.
-- A cluster is a connected component of hosts that any test joins; its least host names it.
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, host, peer_host, size_bytes?
-- @column cluster VARCHAR | Least host of the hosts that tests join.
-- @column ranks_per_host BIGINT ranks | Ranks of the test on each host.
-- @column peer_host VARCHAR | The other host.
-- @column size_bytes BIGINT bytes | Size; NULL for a test that ended before it printed one.
-- @column tests BIGINT tests | Tests of the pair at this size.
-- @column unfinished BIGINT tests | Latest tests of the pair that began and never ended: 1 or 0.
-- @column newest BOOLEAN | The pair's latest test has this size.
-- @column run_id VARCHAR | Run of the latest test.
-- @column history STRUCT(run_id VARCHAR, test INTEGER, run_date TIMESTAMP, busbw_gbps DOUBLE, cut BOOLEAN)[] | Tests of the pair at this size, the latest first.
WITH RECURSIVE originals AS (
    SELECT run_id, run_date, attributes FROM runs ANTI JOIN _run_copies USING (run_id)
),
cut AS (
    SELECT
        o.run_id,
        unnest(from_json(
            try_cast(o.attributes['unfinished'] AS JSON),
            '[{"test": "INTEGER", "collective": "VARCHAR", "hosts": ["VARCHAR"]}]'
        )) AS lost
    FROM originals AS o
),
tests AS (
    SELECT
        b.run_id, b.test, b.collective, b.hosts, b.size_bytes,
        b.busbw_gbps, b.nodes, b.ranks_per_host
    FROM bandwidth_results AS b
    WHERE b.placement = 'out'
    UNION ALL
    SELECT
        run_id, lost.test, lost.collective, lost.hosts, NULL, NULL,
        len(list_distinct(lost.hosts)), len(lost.hosts) // len(list_distinct(lost.hosts))
    FROM cut
),
counted AS (
    SELECT
        t.*,
        list_sort(list_distinct(t.hosts)) AS places,
        o.run_date,
        c.run_id IS NOT NULL AS cut
    FROM tests AS t
    JOIN originals AS o USING (run_id)
    LEFT JOIN cut AS c ON c.run_id = t.run_id AND c.lost.test = t.test
    WHERE t.collective IS NOT NULL AND len(t.hosts) > 0
),
edges AS (
    SELECT DISTINCT unnest([one, place]) AS one, unnest([place, one]) AS other
    FROM (SELECT places[1] AS one, unnest(places) AS place FROM counted)
),
labels(host, cluster) USING KEY (host) AS (
    SELECT DISTINCT one, one FROM edges
    UNION
    SELECT e.other, min(l.cluster)
    FROM labels AS l
    JOIN edges AS e ON e.one = l.host
    JOIN recurring.labels AS known ON known.host = e.other
    WHERE l.cluster < known.cluster
    GROUP BY e.other
),
pairs AS (
    SELECT
        l.cluster, c.collective, c.ranks_per_host,
        c.places[1] AS host, c.places[2] AS peer_host,
        c.size_bytes, c.busbw_gbps, c.cut, c.run_id, c.test, c.run_date,
        rank() OVER (
            PARTITION BY c.collective, c.ranks_per_host, c.places
            ORDER BY c.run_date DESC NULLS LAST, c.run_id DESC, c.test DESC
        ) = 1 AS newest
    FROM counted AS c
    JOIN labels AS l ON l.host = c.places[1]
    WHERE c.nodes = 2 AND c.ranks_per_host IS NOT NULL
)
SELECT
    cluster,
    collective,
    ranks_per_host,
    host,
    peer_host,
    size_bytes,
    -- Of rows of one test, as of several types, the best.
    arg_max(busbw_gbps, (coalesce(run_date, TIMESTAMP '0001-01-01'), run_id, test, busbw_gbps)) AS busbw_gbps,
    count(DISTINCT (run_id, test)) AS tests,
    bool_or(cut AND newest)::BIGINT AS unfinished,
    bool_or(newest) AS newest,
    max_by(run_id, (coalesce(run_date, TIMESTAMP '0001-01-01'), run_id)) AS run_id,
    list(
        {
            'run_id': run_id, 'test': test, 'run_date': run_date, 'busbw_gbps': busbw_gbps, 'cut': cut
        }
        ORDER BY run_date DESC NULLS LAST, run_id DESC, test DESC, busbw_gbps DESC
    ) AS history
FROM pairs
GROUP BY cluster, collective, ranks_per_host, host, peer_host, size_bytes
