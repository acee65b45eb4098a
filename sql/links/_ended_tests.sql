-- Hosts and links that tests showed to be slow, and with which tests do not go on.
-- A host was drained: over half of the hosts that it was tested with were tested without it on 3 later
-- days and for over a week. Any: its latest slow test is over 90 days before the latest of its cluster.
-- @scope fleet
-- @grain incident
WITH ends AS (
    SELECT DISTINCT cluster, unnest([host, peer_host]) AS host, unnest([peer_host, host]) AS peer_host, day
    FROM (SELECT *, unnest(history).run_date::DATE AS day FROM _host_tests)
),
subjects AS (
    SELECT incident, cluster, scope, subject, max(run_date)::DATE AS last_day
    FROM _slow_tests
    GROUP BY incident, cluster, scope, subject
),
own AS (
    SELECT s.incident, s.last_day, e.cluster, e.peer_host, e.day
    FROM subjects AS s
    JOIN ends AS e ON e.cluster = s.cluster AND e.host = s.subject
    WHERE s.scope = 'host'
),
peers AS (
    SELECT incident, cluster, peer_host, any_value(last_day) AS last_day
    FROM own
    GROUP BY incident, cluster, peer_host
),
tested_later AS (
    SELECT
        p.incident, p.peer_host,
        coalesce(count(DISTINCT e.day) >= 3 AND max(e.day) - any_value(p.last_day) > 7, false) AS often
    FROM peers AS p
    LEFT JOIN ends AS e ON e.cluster = p.cluster AND e.host = p.peer_host AND e.day > p.last_day
        AND e.day NOT IN (SELECT day FROM own AS o WHERE o.incident = p.incident AND day IS NOT NULL)
    GROUP BY p.incident, p.peer_host
)
SELECT incident
FROM tested_later
GROUP BY incident
HAVING 2 * count(*) FILTER (often) > count(*)
UNION
SELECT s.incident
FROM subjects AS s
JOIN ends AS e USING (cluster)
GROUP BY s.incident, s.last_day
HAVING max(e.day) - s.last_day > 90
