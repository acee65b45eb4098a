-- Is a link between two pipeline stages slow?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- A row is a sender, a receiver and a size of message; `relative` is its speed over the median of
-- the pairs that send as much in the same run. Well below 1 in many messages: a slow link. Tests of links
-- between hosts are in `link_health`.

WITH messages AS (
    SELECT
        run_id,
        call,
        max(rank) FILTER (collective = 'send') AS sender,
        max(rank) FILTER (collective = 'recv') AS receiver,
        max(size_bytes) AS size_bytes,
        max(algbw_gbps) AS gbps
    FROM collective_calls
    WHERE collective IN ('send', 'recv') AND matched AND contains(run_id, $run)
    GROUP BY run_id, call
),
pairs AS (
    SELECT run_id, sender, receiver, size_bytes, count(*) AS messages, median(gbps) AS p50_gbps
    FROM messages
    WHERE gbps IS NOT NULL
    GROUP BY ALL
),
places AS (
    SELECT run_id, rank, max(host) AS host
    FROM sources
    GROUP BY run_id, rank
)
SELECT
    p.run_id,
    p.sender,
    s.host AS sender_host,
    p.receiver,
    r.host AS receiver_host,
    p.size_bytes,
    p.messages,
    p.p50_gbps,
    p.p50_gbps / median(p.p50_gbps) OVER (PARTITION BY p.run_id, p.size_bytes) AS relative
FROM pairs AS p
LEFT JOIN places AS s ON (s.run_id, s.rank) = (p.run_id, p.sender)
LEFT JOIN places AS r ON (r.run_id, r.rank) = (p.run_id, p.receiver)
ORDER BY relative, p.run_id, p.size_bytes, p.sender, p.receiver
LIMIT $top
