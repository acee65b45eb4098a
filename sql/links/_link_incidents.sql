-- Hosts and links that bandwidth tests show to be slow, as incidents: one per subject, over all kinds of test.
-- A kind of test is a collective and a number of ranks per host. A pair of a slow host is none of its own.
-- @scope fleet
-- @grain incident
-- @column config VARCHAR | format=nccl_tests and the cluster.
-- @column kind VARCHAR | slow_node or slow_link.
-- @column severity VARCHAR | critical for a host, warning for a link.
-- @column level INTEGER | Place of the severity, as in incidents.
-- @column since TIMESTAMP | Date of the first of the slow tests in a row up to the latest; NULL where tests have no date.
-- @column last_seen TIMESTAMP | Date of the last of them.
-- @column runs BIGINT runs | Latest tests of its pairs of hosts, in all kinds of test.
-- @column slow_runs BIGINT runs | Those of them that are slow.
-- @column cause VARCHAR | node or link.
-- @column evidence VARCHAR | What was seen in the slowest kind of test.
-- @column latest_run VARCHAR | Run of the latest slow test.
-- @column open BOOLEAN | Tests go on with it; see _ended_tests.
-- @column run_ids VARCHAR[] | Runs whose tests show it, the latest last.
WITH judged AS (
    SELECT *, scope = 'class' OR verdict IN ('slow', 'slow_pair') AS slow
    FROM link_health
    WHERE verdict NOT IN ('other_size', 'few_tests')
),
dates AS (
    SELECT
        incident, cluster, scope, subject,
        coalesce(min(since), max(run_date)) AS since,
        max(run_date) AS last_seen,
        list(run_id ORDER BY run_date NULLS FIRST, run_id) AS run_ids
    FROM _slow_tests
    GROUP BY incident, cluster, scope, subject
),
worst AS (
    SELECT
        cluster, scope, subject,
        sum(unfinished) FILTER (slow)::BIGINT AS unfinished,
        arg_min(
            {
                'host': host, 'peer_host': peer_host, 'collective': collective,
                'size_bytes': size_bytes, 'gbps': busbw_gbps, 'reference_gbps': reference_gbps,
                'ratio': ratio
            },
            (coalesce(ratio, 0), collective, ranks_per_host)
        ) FILTER (slow) AS seen
    FROM judged
    GROUP BY cluster, scope, subject
    HAVING bool_or(slow)
),
tests AS (
    SELECT
        w.cluster, w.scope, w.subject,
        count(*) AS runs,
        count(*) FILTER (t.verdict <> 'ok') AS slow_runs
    FROM worst AS w
    JOIN judged AS t ON t.cluster = w.cluster AND CASE w.scope
        WHEN 'pair' THEN t.subject = w.subject
        WHEN 'host' THEN w.subject IN (t.host, t.peer_host)
        ELSE t.link_class = w.subject
    END
    WHERE t.scope = 'pair'
    GROUP BY ALL
)
SELECT
    d.incident,
    concat('format=nccl_tests cluster=', w.cluster) AS config,
    CASE w.scope WHEN 'host' THEN 'slow_node' ELSE 'slow_link' END AS kind,
    CASE w.scope WHEN 'host' THEN 'critical' ELSE 'warning' END AS severity,
    severity_level(severity) AS level,
    CASE w.scope WHEN 'host' THEN 'host ' ELSE '' END || w.subject AS subject,
    d.since,
    d.last_seen,
    t.runs,
    t.slow_runs,
    CASE w.scope WHEN 'host' THEN 'node' ELSE 'link' END AS cause,
    concat(
        CASE w.scope WHEN 'host' THEN 'host ' ELSE '' END, w.subject, ': ',
        CASE
            WHEN w.seen.gbps IS NULL
                THEN format('the bandwidth test of {} began and never ended', w.seen.collective)
            ELSE format(
                '{} of {} bytes reached {:.2f} GB/s{}, {:.0f} % of what the best pairs of the cluster'
                    || ' reach ({:.2f} GB/s)',
                w.seen.collective, w.seen.size_bytes, w.seen.gbps,
                CASE w.scope WHEN 'pair' THEN '' ELSE ' in the median of its pairs' END,
                100 * w.seen.ratio, w.seen.reference_gbps
            )
        END,
        CASE WHEN w.seen.gbps IS NOT NULL AND w.unfinished > 0
            THEN format('; tests that never ended: {}', w.unfinished) ELSE ''
        END,
        '.'
    ) AS evidence,
    CASE w.scope
        WHEN 'host' THEN format(
            'Test the ports and cables of {} (ib_write_bw, counters of errors), or drain it.',
            w.subject
        )
        WHEN 'class' THEN 'Every link between two groups of hosts is slow: look at the switch between them.'
        ELSE format(
            'Test the link between {} and {} (ib_write_bw), check cable, port and route.',
            w.seen.host, w.seen.peer_host
        )
    END AS advice,
    d.run_ids[-1] AS latest_run,
    e.incident IS NULL AS open,
    d.run_ids
FROM worst AS w
JOIN tests AS t USING (cluster, scope, subject)
JOIN dates AS d USING (cluster, scope, subject)
LEFT JOIN _ended_tests AS e USING (incident)
WHERE NOT (w.scope = 'pair' AND EXISTS (
    SELECT 1 FROM worst AS h
    WHERE h.scope = 'host' AND h.cluster = w.cluster
        AND h.subject IN (w.seen.host, w.seen.peer_host)
))
