-- Number that a rank has in the usual order, stage after stage: groups and neighbours follow from it.
-- @internal
-- @grain run_id, rank
-- @column slot BIGINT | Stage times the ranks of a stage, plus the rank's position among them; NULL where the printed stages contradict every order.
WITH positions AS (
    SELECT
        run_id, rank, stage,
        row_number() OVER (PARTITION BY run_id, stage ORDER BY rank) - 1 AS position
    FROM (SELECT DISTINCT run_id, rank, stage FROM ops WHERE op <> 'ddp_grad_comm') AS printed
    SEMI JOIN (SELECT run_id FROM _rank_orders WHERE rank_order = 'printed') AS o USING (run_id)
)
SELECT
    c.run_id,
    c.rank,
    CASE o.rank_order
        WHEN 'tp-cp-dp-pp' THEN c.rank
        WHEN 'tp-cp-pp-dp' THEN
            c.rank // (r.tp * coalesce(r.cp, 1)) % r.pp * (r.world_size // r.pp)
            + c.rank // (r.tp * coalesce(r.cp, 1) * r.pp) * r.tp * coalesce(r.cp, 1)
            + c.rank % (r.tp * coalesce(r.cp, 1))
        WHEN 'printed' THEN p.stage * (r.world_size // r.pp) + p.position
    END::BIGINT AS slot
FROM (SELECT DISTINCT run_id, rank FROM comms) AS c
JOIN runs AS r USING (run_id)
JOIN _rank_orders AS o USING (run_id)
LEFT JOIN positions AS p USING (run_id, rank)
