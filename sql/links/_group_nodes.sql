-- Hosts that the groups of a kind span, or two neighbours in a pipeline, where the host of every seen member is known.
-- @grain run_id, group_kind
-- @column nodes BIGINT hosts | Hosts of a group; NULL where a host is unknown, members are missing, or groups differ.
WITH hosts AS (
    SELECT run_id, rank, min(host) AS host FROM sources WHERE rank IS NOT NULL GROUP BY run_id, rank
),
-- A rank sends to the one in its place of the next stage.
stages AS (
    SELECT
        s.run_id, s.rank, r.pp,
        s.slot // ranks_per_stage(r.world_size, r.pp) AS stage,
        s.slot % ranks_per_stage(r.world_size, r.pp) AS place
    FROM _rank_slots AS s
    JOIN runs AS r USING (run_id)
    WHERE r.pp > 1
),
members AS (
    SELECT run_id, rank, group_kind, group_key, group_size FROM _rank_groups
    UNION ALL
    SELECT run_id, rank, 'pp', place * pp + hop, 2
    FROM (SELECT *, unnest([stage - 1, stage]) AS hop FROM stages)
    WHERE hop BETWEEN 0 AND pp - 2
),
groups AS (
    SELECT
        g.run_id, g.group_kind, g.group_key,
        any_value(g.group_size) AS group_size,
        CASE WHEN count(h.host) = any_value(g.group_size) THEN count(DISTINCT h.host) END AS nodes
    FROM members AS g
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
