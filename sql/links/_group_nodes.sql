-- Hosts that the groups of a kind span, where the host of every seen member is known.
-- @internal
-- @grain run_id, group_kind
-- @column group_size INTEGER ranks | Members of a group.
-- @column nodes BIGINT hosts | Hosts of a group; NULL where a host is unknown, members are missing, or groups differ.
WITH hosts AS (
    SELECT run_id, rank, min(host) AS host FROM sources WHERE rank IS NOT NULL GROUP BY run_id, rank
),
groups AS (
    SELECT
        g.run_id, g.group_kind, g.group_key,
        any_value(g.group_size) AS group_size,
        CASE WHEN count(h.host) = any_value(g.group_size) THEN count(DISTINCT h.host) END AS nodes
    FROM _rank_groups AS g
    LEFT JOIN hosts AS h USING (run_id, rank)
    GROUP BY g.run_id, g.group_kind, g.group_key
)
SELECT
    run_id,
    group_kind,
    max(group_size) AS group_size,
    CASE WHEN count(nodes) = count(*) AND min(nodes) = max(nodes) THEN max(nodes) END AS nodes
FROM groups
GROUP BY run_id, group_kind
