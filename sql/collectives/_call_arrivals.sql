-- Matched calls of several ranks, with when their members arrived, on one clock or on related ones.
-- @internal
-- @grain run_id, identity
-- @column identity UBIGINT | Equal for the members of a call.
-- @column aligned BOOLEAN | The members' times can be compared: one clock, or clocks that were related.
-- @column open_ns BIGINT ns | How far off the difference of two members' times can be; 0 on one clock.
-- @column first_start_ns BIGINT ns | When the first member arrived.
-- @column last_start_ns BIGINT ns | When the last member arrived.
-- @column sent_ns BIGINT ns | When the sender of a message started.
-- @column received_ns BIGINT ns | When the receiver of a message had it.
-- @column last_rank INTEGER | Member that arrived last, the lowest of several; NULL where clocks do not tell which.
WITH clocks AS (
    -- A clock is told by its lowest rank: a number is compared faster than a text.
    SELECT *, min(rank) OVER (PARTITION BY run_id, clock) AS clock_rank
    FROM clock_offsets
),
members AS (
    SELECT
        i.run_id, i.identity, i.rank, i.collective, k.clock_rank,
        aligned_ns(i.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
        aligned_ns(i.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns
    FROM _comm_identities AS i
    SEMI JOIN (SELECT run_id, identity FROM _comm_calls WHERE matched AND members > 1) AS calls
        USING (run_id, identity)
    LEFT JOIN clocks AS k USING (run_id, rank)
),
by_clock AS (
    SELECT
        run_id, identity, clock_rank,
        count(*) AS seen,
        min(begin_ns) AS first_start_ns,
        max(begin_ns) AS last_start_ns,
        max(begin_ns) FILTER (collective = 'send') AS sent_ns,
        max(finish_ns) FILTER (collective = 'recv') AS received_ns,
        -- The latest start and, of equal ones, the lowest rank in one number.
        max(begin_ns::HUGEINT * 4294967296 - rank) AS last_start
    FROM members
    GROUP BY run_id, identity, clock_rank
),
on_one_clock AS (
    SELECT b.*, b.seen = c.members AND b.clock_rank IS NOT NULL AS one_clock
    FROM by_clock AS b
    JOIN _comm_calls AS c USING (run_id, identity)
),
several_clocks AS (
    SELECT
        b.run_id,
        b.identity,
        bool_and(k.offset_ns IS NOT NULL) AS aligned,
        clocks_open_ns(k.anchor, k.near_ns, k.uncertainty_ns) AS open_ns,
        min(b.first_start_ns) AS first_start_ns,
        max(b.last_start_ns, 2) AS latest_ns,
        max(b.sent_ns) AS sent_ns,
        max(b.received_ns) AS received_ns,
        max(b.last_start) AS last_start
    FROM on_one_clock AS b
    LEFT JOIN clocks AS k ON k.run_id = b.run_id AND k.rank = b.clock_rank
    WHERE NOT b.one_clock
    GROUP BY b.run_id, b.identity
)
SELECT
    run_id, identity,
    true AS aligned,
    0::BIGINT AS open_ns,
    first_start_ns, last_start_ns, sent_ns, received_ns,
    (last_start_ns::HUGEINT * 4294967296 - last_start)::INTEGER AS last_rank
FROM on_one_clock
WHERE one_clock
UNION ALL
SELECT
    run_id, identity, aligned, open_ns, first_start_ns, latest_ns[1], sent_ns, received_ns,
    -- Between clocks the last is known only if the next one came earlier than they can be off.
    CASE WHEN latest_ns[1] - latest_ns[2] >= open_ns
        THEN (latest_ns[1]::HUGEINT * 4294967296 - last_start)::INTEGER
    END
FROM several_clocks
