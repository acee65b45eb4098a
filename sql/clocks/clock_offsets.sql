-- How far the clock of every rank is ahead of that of the run's lowest rank, and how well that is known.
-- Estimated from the ends of collectives and from messages between hosts, over other hosts where two
-- have nothing in common. What compares times of several ranks puts them on the reference clock.
-- @report Clocks
-- @grain run_id, rank
-- @column clock VARCHAR | Host of the rank; `*` where the run is on one unnamed host; `rank N` where a host is unknown beside known ones, or where times contradict that there is one host.
-- @column offset_ms DOUBLE ms | Reading of the rank's clock minus that of the reference at the same moment, when the reference reads origin_ns.
-- @column drift_ppm DOUBLE ppm | What the rank's clock gains on the reference; 0 where a constant explains the readings as well.
-- @column uncertainty_ms DOUBLE ms | How far off the offset may be; 0 on the reference clock itself.
-- @column basis VARCHAR | shared: the rank is on the reference clock; collectives: their ends; messages: half the round trip of the pipeline's messages, on at least a part of the way.
-- @column links INTEGER | Comparisons of two clocks on the way to the reference.
-- @column offset_ns BIGINT ns | offset_ms, exactly.
-- @column drift DOUBLE | drift_ppm as a fraction.
-- @column uncertainty_ns BIGINT ns | uncertainty_ms, exactly.
-- @column origin_ns BIGINT ns | Earliest start that was read from the reference clock.
-- @column anchor VARCHAR | First clock on the way from which links of collectives lead here: what errs before it errs alike for all clocks that share it.
-- @column near_ns BIGINT ns | Uncertainty from the anchor on: that of differences between clocks that share it.
WITH RECURSIVE links AS (
    SELECT l.*, k.origin_ns, r.origin_ns AS reference_origin_ns
    FROM _clock_links AS l
    JOIN _clocks AS k USING (run_id, clock)
    JOIN _clocks AS r ON r.run_id = l.run_id AND r.reference
),
-- Every clock over the links that are known best, with the sums over them. Of the first clock from
-- which links of collectives lead here: what errs on the way to it errs alike for all that share it.
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
SELECT
    c.run_id,
    c.rank,
    c.clock,
    ns_to_ms(p.offset_ns) AS offset_ms,
    p.drift * 1e6 AS drift_ppm,
    ns_to_ms(p.uncertainty_ns) AS uncertainty_ms,
    CASE
        WHEN p.links = 0 THEN 'shared'
        WHEN p.anchor = r.clock THEN 'collectives'
        WHEN p.links > 0 THEN 'messages'
    END AS basis,
    p.links,
    CASE
        WHEN p.clock IS NOT NULL THEN NULL
        WHEN s.simulated THEN 'simulated'
        ELSE 'clocks_not_aligned'
    END AS reason,
    p.offset_ns,
    p.drift,
    p.uncertainty_ns,
    r.origin_ns,
    p.anchor,
    p.near_ns
FROM _rank_clocks AS c
JOIN _clocks AS r ON r.run_id = c.run_id AND r.reference
JOIN runs AS s ON s.run_id = c.run_id
LEFT JOIN paths AS p ON p.run_id = c.run_id AND p.clock = c.clock AND NOT coalesce(s.simulated, false)
