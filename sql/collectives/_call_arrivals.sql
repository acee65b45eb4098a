-- Calls with when their members arrived, on one clock or on related ones.
-- @grain run_id, identity
-- @column peers BIGINT ranks | Members seen but one.
-- @column lowest_rank INTEGER | Lowest member of a matched call.
-- @column shortest_ns BIGINT ns | Shortest duration among the members of a matched call.
-- @column aligned BOOLEAN | It is matched, of several ranks, and their times can be compared: one clock, or clocks that were related. Else what follows is NULL.
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
shared AS (
    -- Runs on one clock: the times are those that were read.
    SELECT n.run_id
    FROM _rank_slots AS n
    LEFT JOIN clocks AS k USING (run_id, rank)
    GROUP BY n.run_id
    HAVING count(k.clock_rank) = count(*) AND count(DISTINCT k.clock_rank) = 1
        AND bool_and(coalesce(k.offset_ns, 0) = 0 AND coalesce(k.drift, 0) = 0)
),
calls AS (
    SELECT c.*, c.matched AND c.members > 1 AS several, s.run_id IS NOT NULL AS shared
    FROM _comm_calls AS c
    LEFT JOIN shared AS s USING (run_id)
),
members AS (
    SELECT
        i.run_id, i.identity, i.rank, i.collective, c.members, k.clock_rank,
        aligned_ns(i.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
        aligned_ns(i.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns
    FROM _comm_identities AS i
    JOIN calls AS c USING (run_id, identity)
    LEFT JOIN clocks AS k USING (run_id, rank)
    WHERE c.several AND NOT c.shared
),
by_clock AS (
    SELECT
        run_id, identity, clock_rank,
        count(*) = any_value(members) AND clock_rank IS NOT NULL AS one_clock,
        min(begin_ns) AS first_start_ns,
        max(begin_ns) AS last_start_ns,
        max(begin_ns) FILTER (collective = 'send') AS sent_ns,
        max(finish_ns) FILTER (collective = 'recv') AS received_ns,
        max(begin_ns * 4294967296::HUGEINT - rank) AS last
    FROM members
    GROUP BY run_id, identity, clock_rank
),
compared AS (
    SELECT
        b.run_id,
        b.identity,
        bool_or(b.one_clock) OR bool_and(k.offset_ns IS NOT NULL) AS aligned,
        clocks_open_ns(k.anchor, k.near_ns, k.uncertainty_ns) AS open_ns,
        min(b.first_start_ns) AS first_start_ns,
        max(b.last_start_ns, 2) AS latest_ns,
        max(b.sent_ns) AS sent_ns,
        max(b.received_ns) AS received_ns,
        -- Between clocks the last is known only if the next one came earlier than they can be off.
        CASE WHEN bool_or(b.one_clock) OR latest_ns[1] - latest_ns[2] >= open_ns
            THEN (latest_ns[1] * 4294967296::HUGEINT - max(b.last))::INTEGER
        END AS last_rank
    FROM by_clock AS b
    LEFT JOIN clocks AS k ON k.run_id = b.run_id AND k.rank = b.clock_rank
    GROUP BY b.run_id, b.identity
)
SELECT
    c.run_id, c.identity, c.members - 1 AS peers, c.matched,
    CASE WHEN c.matched THEN c.lowest_rank END AS lowest_rank,
    CASE WHEN c.matched THEN c.lowest_seq END AS lowest_seq,
    CASE WHEN c.matched THEN c.lowest_sub END AS lowest_sub,
    CASE WHEN c.matched THEN c.shortest_ns END AS shortest_ns,
    CASE WHEN c.matched THEN c.largest_bytes END AS largest_bytes,
    c.several AND (c.shared OR coalesce(a.aligned, false)) AS aligned,
    CASE WHEN c.shared AND c.several THEN 0 WHEN a.aligned THEN a.open_ns END AS open_ns,
    CASE WHEN c.shared AND c.several THEN c.first_start_ns WHEN a.aligned THEN a.first_start_ns END
        AS first_start_ns,
    CASE WHEN c.shared AND c.several THEN c.last_start_ns WHEN a.aligned THEN a.latest_ns[1] END
        AS last_start_ns,
    CASE WHEN c.shared AND c.several THEN c.sent_ns WHEN a.aligned THEN a.sent_ns END AS sent_ns,
    CASE WHEN c.shared AND c.several THEN c.received_ns WHEN a.aligned THEN a.received_ns END
        AS received_ns,
    CASE WHEN c.shared AND c.several THEN c.last_rank WHEN a.aligned THEN a.last_rank END AS last_rank
FROM calls AS c
LEFT JOIN compared AS a USING (run_id, identity)
