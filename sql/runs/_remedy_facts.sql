-- What of a run its remedies speak of: gaps in words, sizes to be given, clocks to be related.
-- @grain run_id
-- @column told MAP(VARCHAR, VARCHAR) | Which ranks or stages lack something, by gap, as in _gaps.
-- @column steps MAP(VARCHAR, INTEGER) | The step that they lack, by gap.
-- @column set_pp VARCHAR | What to set for the number of stages; NULL where it is known.
-- @column set_world VARCHAR | What to set for the number of ranks; NULL where it is known, or no rank was traced.
-- @column set_groups VARCHAR | Sizes to set for groups of unknown size; NULL where all that they follow from is known.
-- @column as_seen VARCHAR | Said of proposed numbers: a log is of all stages, and ranks from 0 on without a gap may be all.
-- @column clock_hosts VARCHAR | The reference's host and the first that cannot be related to it.
-- @column hosts_unnamed BOOLEAN | Some rank's host is not known.
-- @column more_steps BIGINT steps | What the layer that is farthest from a trend lacks.
WITH gaps AS (
    SELECT run_id, map_from_entries(list((gap, told))) AS told, map_from_entries(list((gap, step))) AS steps
    FROM _gaps
    GROUP BY run_id
),
seen AS (
    SELECT
        run_id,
        bool_or(traced) AS traced,
        max(stage)::BIGINT + 1 AS stages,
        max(rank)::BIGINT + 1 AS ranks,
        NOT bool_or(traced) OR (count(*) > 1 AND count(*) = max(rank)::BIGINT + 1) AS in_a_row
    FROM _ranks_seen
    GROUP BY run_id
),
groups AS (
    SELECT run_id, list(DISTINCT group_kind) AS kinds
    FROM collective_bandwidth
    WHERE group_size IS NULL
    GROUP BY run_id
),
clocks AS (
    SELECT
        run_id,
        concat_ws(
            ' and ', arg_min(clock, rank), arg_min(clock, rank) FILTER (offset_ns IS NULL)
        ) AS clock_hosts,
        bool_or(clock IN ('*', concat('rank ', rank))) AS hosts_unnamed
    FROM clock_offsets
    GROUP BY run_id
),
trends AS (
    SELECT run_id, max(10 - steps + coalesce(outlier_steps, 0)) AS more_steps
    FROM layer_stats
    WHERE trend_reason = 'few_steps'
    GROUP BY run_id
)
SELECT
    r.run_id,
    coalesce(s.traced, false) AS traced,
    g.* EXCLUDE (run_id),
    CASE
        WHEN coalesce(s.stages, 0) <= r.pp THEN NULL
        WHEN s.in_a_row AND s.stages IS NOT NULL THEN concat('pp=', s.stages)
        ELSE 'pp=N'
    END AS set_pp,
    CASE
        WHEN r.world_size IS NOT NULL OR NOT s.traced THEN NULL
        WHEN s.in_a_row THEN concat('world_size=', s.ranks)
        ELSE 'world_size=N'
    END AS set_world,
    CASE WHEN set_pp <> 'pp=N' OR set_world <> 'world_size=N' THEN ' (as many as were seen)' ELSE '' END
        AS as_seen,
    nullif(concat_ws(
        ',',
        CASE WHEN r.tp IS NULL THEN 'tp=N' END,
        CASE WHEN list_contains(u.kinds, 'cp') AND r.cp IS NULL THEN 'cp=N' END,
        CASE WHEN list_has_any(u.kinds, ['expert', 'tp_expert', 'expert_dp']) AND r.ep IS NULL
            THEN 'ep=N'
        END,
        set_pp,
        set_world
    ), '') AS set_groups,
    c.clock_hosts,
    coalesce(c.hosts_unnamed, false) AS hosts_unnamed,
    t.more_steps
FROM runs AS r
LEFT JOIN seen AS s USING (run_id)
LEFT JOIN gaps AS g USING (run_id)
LEFT JOIN groups AS u USING (run_id)
LEFT JOIN clocks AS c USING (run_id)
LEFT JOIN trends AS t USING (run_id)
