-- Communication groups of every rank: by its slot, tp, cp, dp, pp from fastest to slowest.
-- Expert groups lie inside the data-parallel dimension: ep tensor-parallel groups in a row.
-- @grain run_id, rank, group_kind
-- @column group_key BIGINT | The same number for the members of a group and for no others of the kind.
-- @column group_size INTEGER ranks | Members of the group.
-- @column group_size_source VARCHAR | Where the size comes from: set, printed, name or derived.
WITH sizes AS (
    SELECT
        run_id, cp AS declared_cp, pp, topology_source,
        -- Products of what names and headers give.
        tp::HUGEINT AS tp, dp::HUGEINT AS dp, ep::HUGEINT AS ep, coalesce(cp, 1)::HUGEINT AS cp,
        ranks_per_stage(world_size, pp) AS stage_ranks
    FROM runs
),
groups AS (
    SELECT
        r.run_id,
        r.rank,
        unnest([
            {'kind': 'tp', 'key': r.slot // s.tp, 'size': s.tp, 'source': 'tp'},
            {
                'kind': 'cp',
                'key': r.slot // (s.tp * s.cp) * s.tp + r.slot % s.tp,
                'size': s.declared_cp,
                'source': 'cp'
            },
            {
                'kind': 'dp',
                'key': r.slot // (s.tp * s.cp * s.dp) * s.tp * s.cp + r.slot % (s.tp * s.cp),
                'size': s.dp,
                'source': 'dp'
            },
            {
                'kind': 'embedding',
                'key': r.slot % s.stage_ranks,
                'size': least(s.pp, 2),
                'source': 'pp'
            },
            {
                'kind': 'expert',
                'key': r.slot // (s.tp * s.ep) * s.tp + r.slot % s.tp,
                'size': s.ep,
                'source': 'ep'
            },
            {
                'kind': 'tp_expert',
                'key': r.slot // (s.tp * s.ep),
                'size': s.tp * s.ep,
                'source': 'ep'
            },
            {
                'kind': 'expert_dp',
                'key': r.slot // (s.tp * s.cp * s.dp) * s.tp * s.ep + r.slot % (s.tp * s.ep),
                'size': s.cp * s.dp // s.ep,
                'source': 'ep'
            }
        ]) AS one,
        s.topology_source
    FROM _rank_slots AS r
    JOIN sizes AS s USING (run_id)
)
SELECT
    run_id,
    rank,
    one.kind AS group_kind,
    try_cast(one.key AS BIGINT) AS group_key,
    try_cast(one.size AS INTEGER) AS group_size,
    topology_source[one.source] AS group_size_source
FROM groups
WHERE group_key IS NOT NULL AND group_size IS NOT NULL
