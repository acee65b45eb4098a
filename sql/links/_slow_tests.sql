-- Runs whose bandwidth tests show that a host or link is slow: of each pair of hosts the latest test.
-- @internal
-- @scope fleet
-- @grain incident, run_id
-- @column incident VARCHAR | 8 hex digits of scope and subject.
-- @column cluster VARCHAR | Least host of the cluster.
-- @column scope VARCHAR | pair, host or class, as in link_health.
-- @column subject VARCHAR | What is slow, as in link_health.
-- @column slow_since TIMESTAMP[] | Of each pair the date of the first test of its present row of slow ones.
SELECT
    left(md5(concat_ws('|', 'links', s.scope, s.subject)), 8) AS incident,
    s.cluster,
    s.scope,
    s.subject,
    p.run_id,
    r.run_date,
    list(coalesce(p.slow_since, r.run_date)) AS slow_since
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
GROUP BY ALL
