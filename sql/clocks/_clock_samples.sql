-- Readings of two clocks at the same moment, as communication between their ranks gives them away.
-- The members of a synchronous collective end together. A message is there after it was sent, which
-- bounds the difference from one side; messages both ways bound it from both (Cristian 1989, and
-- RFC 5905, section 8, for half the round trip as the error).
-- @grain run_id, clock, other, basis, sample
-- @column clock VARCHAR | Clock that is compared.
-- @column other VARCHAR | Clock that it is compared with.
-- @column basis VARCHAR | collectives or messages.
-- @column sample UBIGINT | The call, or the step whose messages these are.
-- @column at_ns BIGINT ns | Reading of `clock` after its origin.
-- @column ahead_ns BIGINT ns | Reading of `other` minus that of `clock`.
-- @column half_ns BIGINT ns | How far off ahead_ns can be: half the round trip of messages.
WITH parted AS (
    SELECT run_id FROM _clocks GROUP BY run_id HAVING count(*) > 1
),
members AS (
    SELECT
        i.run_id, i.identity, i.step, i.rank, i.collective, i.start_ns, i.end_ns, k.clock,
        i.overlapped
    FROM _comm_identities AS i
    SEMI JOIN parted USING (run_id)
    SEMI JOIN (SELECT run_id, identity FROM _comm_calls WHERE matched AND members > 1) AS calls
        USING (run_id, identity)
    JOIN _rank_clocks AS k USING (run_id, rank)
),
ends AS (
    SELECT run_id, identity, clock, min(rank) AS first_rank, max(end_ns) AS end_ns
    FROM members
    WHERE collective IN ('all_reduce', 'all_gather', 'reduce_scatter') AND NOT overlapped
    GROUP BY run_id, identity, clock
),
led AS (
    SELECT
        *,
        first_value(clock) OVER lead AS led_by,
        first_value(end_ns) OVER lead AS led_ns
    FROM ends
    WINDOW lead AS (PARTITION BY run_id, identity ORDER BY first_rank)
),
messages AS (
    SELECT
        s.run_id,
        s.step,
        least(s.clock, r.clock) AS clock,
        greatest(s.clock, r.clock) AS other,
        s.clock < r.clock AS away,
        CASE WHEN away THEN s.start_ns ELSE r.end_ns END AS read_ns,
        CASE WHEN away THEN r.end_ns - s.start_ns ELSE s.start_ns - r.end_ns END AS bound_ns
    FROM members AS s
    JOIN members AS r USING (run_id, identity)
    WHERE s.collective = 'send' AND r.collective = 'recv' AND s.clock <> r.clock
),
bounds AS (
    SELECT
        run_id, clock, other, step,
        min(read_ns) AS read_ns,
        min(bound_ns) FILTER (away) AS most_ns,
        max(bound_ns) FILTER (NOT away) AS least_ns
    FROM messages
    GROUP BY run_id, clock, other, step
    HAVING most_ns IS NOT NULL AND least_ns IS NOT NULL
),
pairs AS (
    SELECT
        run_id, led_by AS clock, clock AS other, 'collectives' AS basis, identity AS sample,
        led_ns AS read_ns, end_ns - led_ns AS ahead_ns, 0 AS half_ns
    FROM led
    WHERE clock <> led_by
    UNION ALL
    SELECT
        run_id, clock, other, 'messages', step, read_ns,
        (most_ns + least_ns) // 2, abs(most_ns - least_ns) // 2 + 1
    FROM bounds
),
both_ways AS (
    SELECT * FROM pairs
    UNION ALL
    SELECT run_id, other, clock, basis, sample, read_ns + ahead_ns, -ahead_ns, half_ns FROM pairs
)
SELECT
    b.run_id, b.clock, b.other, b.basis, b.sample::UBIGINT AS sample,
    b.read_ns - k.origin_ns AS at_ns, b.ahead_ns, b.half_ns::BIGINT AS half_ns
FROM both_ways AS b
JOIN _clocks AS k USING (run_id, clock)
