-- Runs whose bandwidth tests show that a host or link is slow: of each pair of hosts the latest test.
-- @scope fleet
-- @grain incident, run_id
-- @column incident VARCHAR | 8 hex digits of scope and subject.
-- @column since TIMESTAMP | Of these pairs the date of the first slow test after the latest good one of the subject; NULL without one.
WITH pairs AS (
    SELECT
        left(md5(concat_ws('|', 'links', s.scope, s.subject)), 8) AS incident,
        s.cluster,
        s.scope,
        s.subject,
        p.run_id,
        r.run_date,
        coalesce(nullif(p.slow_dates, []), [r.run_date]) AS slow_dates,
        -- One pair of a slow host may have been slow for another one before.
        max(p.ok_until) OVER (
            PARTITION BY s.cluster, s.scope, s.subject, s.collective, s.ranks_per_host
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
        ) AS others_ok_until
    FROM link_health AS s
    JOIN link_health AS t USING (cluster, collective, ranks_per_host)
    JOIN _pair_tests AS p
        ON p.cluster = t.cluster AND p.collective = t.collective
        AND p.ranks_per_host = t.ranks_per_host AND p.host = t.host AND p.peer_host = t.peer_host
    JOIN runs AS r ON r.run_id = p.run_id
    WHERE t.scope = 'pair' AND t.verdict IN ('slow_pair', 'slow_host', 'link_class')
        AND CASE s.scope
            WHEN 'pair' THEN s.verdict = 'slow_pair' AND s.subject = t.subject
            WHEN 'host' THEN s.verdict = 'slow' AND s.host IN (t.host, t.peer_host)
            ELSE s.subject = t.link_class
        END
)
SELECT
    incident, cluster, scope, subject, run_id, run_date,
    min(list_min(list_filter(slow_dates, lambda d: coalesce(d > others_ok_until, true)))) AS since
FROM pairs
GROUP BY ALL
