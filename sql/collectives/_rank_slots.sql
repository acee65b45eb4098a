-- Number that a rank has in the usual order, stage after stage: groups and neighbours follow from it.
-- @grain run_id, rank
-- @column slot BIGINT | Stage times the ranks of a stage, plus the rank's position among them; NULL where the printed stages contradict every order.
WITH sizes AS (
    SELECT
        run_id,
        ranks_per_stage(world_size, pp)::HUGEINT AS stage_ranks,
        tp::HUGEINT * coalesce(cp, 1) AS model_ranks
    FROM runs
),
positions AS (
    SELECT
        run_id, rank, stage,
        row_number() OVER (PARTITION BY run_id, stage ORDER BY rank) - 1 AS position
    FROM (SELECT DISTINCT run_id, rank, stage FROM ops WHERE kind IS NOT NULL) AS printed
    SEMI JOIN (SELECT run_id FROM _rank_orders WHERE rank_order = 'printed') AS o USING (run_id)
)
SELECT
    c.run_id,
    c.rank,
    try_cast(CASE o.rank_order
        WHEN 'tp-cp-dp-pp' THEN c.rank
        WHEN 'tp-cp-pp-dp' THEN
            c.rank // s.model_ranks % r.pp * s.stage_ranks
            + c.rank // (s.model_ranks * r.pp) * s.model_ranks
            + c.rank % s.model_ranks
        WHEN 'printed' THEN p.stage * s.stage_ranks + p.position
    END AS BIGINT) AS slot
FROM (SELECT DISTINCT run_id, rank FROM comms) AS c
JOIN runs AS r USING (run_id)
JOIN sizes AS s USING (run_id)
JOIN _rank_orders AS o USING (run_id)
LEFT JOIN positions AS p USING (run_id, rank)
