-- Schedule of each run's pipeline, and the bubble it has in theory.
-- @grain run_id
-- @column stages INTEGER stages | Pipeline stages p.
-- @column virtual_stages INTEGER | Virtual stages per rank v: 1 unless the input says otherwise. A plan's header does not: its vpp counts layers.
-- @column header_vpp INTEGER | vpp in a plan's header, where it is usable.
-- @column theory_bubble_ratio DOUBLE | (p - 1) / (v m + p - 1).
-- @column theory_over_ideal_ratio DOUBLE | (p - 1) / (v m).
WITH schedules AS (
    SELECT
        r.run_id,
        CASE WHEN listable(r.pp, r.ranks_seen) THEN r.pp END AS stages,
        nullif(r.micro_batches, 0) AS micro_batches,
        CASE WHEN plan.run_id IS NULL OR r.topology_source['vpp'] = 'set' THEN r.vpp END AS vpp,
        CASE WHEN plan.run_id IS NOT NULL AND r.topology_source['vpp'] IS DISTINCT FROM 'set'
            THEN nullif(r.vpp, 0)
        END AS header_vpp
    FROM runs AS r
    LEFT JOIN (SELECT DISTINCT run_id FROM workload_passes) AS plan USING (run_id)
)
SELECT
    run_id,
    stages,
    micro_batches,
    coalesce(nullif(vpp, 0), 1)::INTEGER AS virtual_stages,
    header_vpp,
    theory_bubble(stages, micro_batches, virtual_stages) AS theory_bubble_ratio,
    theory_over_ideal(stages, micro_batches, virtual_stages) AS theory_over_ideal_ratio
FROM schedules
