-- Waiting for peers inside computing operations, by rank and step.
-- Synchronous calls end together, so a member's time beyond the shortest of its group was waiting;
-- broadcast and reduce let ranks go early and are left out. Needs no common clock.
-- @internal
-- @grain run_id, step, rank
-- @column wait_ns BIGINT ns | Own duration minus the group's shortest, summed over calls; NULL where a peer of any of them was not seen.
SELECT
    m.run_id,
    m.step,
    m.rank,
    CASE
        WHEN bool_and(m.matched)
            THEN try_cast(coalesce(sum(m.duration_ns - m.shortest_ns), 0) AS BIGINT)
    END AS wait_ns
FROM _comm_matches AS m
JOIN _op_intervals AS o ON o.run_id = m.run_id AND o.rank = m.rank AND o.seq = m.seq
WHERE m.sub > 0 AND o.part IN ('compute', 'data')
    AND NOT m.overlapped AND m.collective NOT IN ('broadcast', 'reduce')
GROUP BY m.run_id, m.step, m.rank
