-- Every clock against the reference, that of the run's lowest rank, over the links that are known best.
-- @internal
-- @grain run_id, clock
-- @column clock VARCHAR | Clock that communication relates to the reference.
-- @column uncertainty_ns BIGINT ns | Sum over the links on the way.
-- @column offset_ns BIGINT ns | Reading of the clock minus that of the reference, when the reference reads its origin.
-- @column drift DOUBLE | What the clock gains on the reference per unit of time.
-- @column anchor VARCHAR | First clock from which links of collectives lead here: what errs on the way to it errs alike for all clocks that share it.
-- @column near_ns BIGINT ns | Uncertainty of the links from the anchor.
-- @column links INTEGER | Links on the way.
WITH RECURSIVE links AS (
    SELECT l.*, k.origin_ns, r.origin_ns AS reference_origin_ns
    FROM _clock_links AS l
    JOIN _clocks AS k USING (run_id, clock)
    JOIN _clocks AS r ON r.run_id = l.run_id AND r.reference
),
paths(run_id, clock, uncertainty_ns, offset_ns, drift, anchor, near_ns, links)
USING KEY (run_id, clock) AS (
    SELECT run_id, clock, 0::BIGINT, 0::BIGINT, 0::DOUBLE, clock, 0::BIGINT, 0
    FROM _clocks
    WHERE reference
    UNION
    SELECT run_id, clock, uncertainty_ns, offset_ns, drift, anchor, near_ns, links
    FROM (
        SELECT
            l.run_id,
            l.other AS clock,
            -- A link counts from the origin of the clock that it leads from.
            l.reference_origin_ns + p.offset_ns - l.origin_ns AS moved_ns,
            l.uncertainty_ns + round(l.hidden_drift * abs(moved_ns))::BIGINT AS link_ns,
            p.uncertainty_ns + link_ns AS uncertainty_ns,
            p.offset_ns + l.offset_ns + round(l.drift * moved_ns)::BIGINT AS offset_ns,
            p.drift + l.drift + p.drift * l.drift AS drift,
            CASE l.basis WHEN 'messages' THEN l.other ELSE p.anchor END AS anchor,
            CASE l.basis WHEN 'messages' THEN 0 ELSE p.near_ns + link_ns END AS near_ns,
            p.links + 1 AS links
        FROM paths AS p
        JOIN links AS l USING (run_id, clock)
        LEFT JOIN recurring.paths AS known ON known.run_id = l.run_id AND known.clock = l.other
        WHERE known.clock IS NULL
            OR p.uncertainty_ns + link_ns < known.uncertainty_ns
        QUALIFY row_number() OVER (
            PARTITION BY l.run_id, l.other
            ORDER BY p.uncertainty_ns + link_ns, p.clock
        ) = 1
    ) AS nearest
)
FROM paths
