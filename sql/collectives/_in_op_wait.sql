-- Waiting for peers inside computing operations, by rank and step.
-- Synchronous calls end together, so a member's time beyond the shortest of its group was waiting, of which in an
-- annotated pass that counts beside which no kernel runs; broadcast and reduce let ranks go early and are left out.
-- Needs no common clock.
-- @grain run_id, step, rank
-- @column wait_ns BIGINT ns | Own duration minus the group's shortest, summed over calls; NULL where a peer of any of them was not seen.
WITH calls AS (
    SELECT m.run_id, m.step, m.rank, m.collective, m.overlapped, m.matched, m.duration_ns - m.shortest_ns AS wait_ns
    FROM _comm_matches AS m
    JOIN _op_intervals AS o ON o.run_id = m.run_id AND o.rank = m.rank AND o.seq = m.seq
    WHERE m.sub > 0 AND o.part IN ('compute', 'data')
    UNION ALL
    SELECT
        m.run_id, m.step, m.rank, m.collective, m.overlapped, m.matched,
        clipped_ns(e.start_ns, e.end_ns, c.start_ns, c.start_ns + m.duration_ns - m.shortest_ns)
    FROM _exposed_calls AS e
    ASOF JOIN comms AS c ON c.run_id = e.run_id AND c.rank = e.rank AND c.start_ns <= e.start_ns
    JOIN _comm_matches AS m ON m.run_id = c.run_id AND m.rank = c.rank AND m.seq = c.seq AND m.sub = 0
)
SELECT
    run_id,
    step,
    rank,
    CASE WHEN bool_and(matched) THEN try_cast(coalesce(sum(wait_ns), 0) AS BIGINT) END AS wait_ns
FROM calls
WHERE NOT overlapped AND collective NOT IN ('broadcast', 'reduce')
GROUP BY run_id, step, rank
