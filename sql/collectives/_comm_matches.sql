-- Every communication with what its matched peers say about it.
-- @internal
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group.
-- @column group_size_source VARCHAR | Where the size comes from.
-- @column call VARCHAR | Call that it is part of, named by its lowest rank: `rank:seq:sub`.
-- @column peers BIGINT ranks | Other members of the call that were seen.
-- @column matched BOOLEAN | All members of the group were seen making this call, with times.
-- @column shortest_ns BIGINT ns | Shortest duration among the members.
-- @column largest_bytes BIGINT bytes | Largest input tensor among the members.
-- @column one_clock BOOLEAN | The members' times were read from one clock.
-- @column first_start_ns BIGINT ns | When the first member arrived, on one clock.
-- @column last_start_ns BIGINT ns | When the last member arrived, on one clock.
-- @column received_ns BIGINT ns | When the receiver of a send had the data, on one clock.
-- @column last_rank INTEGER | Member that arrived last, the lowest of several.
WITH members AS (
    SELECT i.*, k.clock
    FROM _comm_identities AS i
    LEFT JOIN _rank_clocks AS k USING (run_id, rank)
),
calls AS (
    SELECT
        run_id,
        identity,
        count(*) = max(group_size) AND count(*) > 1
            AND count(start_ns) = count(*) AND count(duration_ns) = count(*) AS matched,
        count(clock) = count(*) AND min(clock) = max(clock) AS one_clock,
        count(*) AS members,
        min(duration_ns) AS shortest_ns,
        max(bytes) AS largest_bytes,
        min(start_ns) AS first_start_ns,
        max(start_ns) AS last_start_ns,
        max(end_ns) FILTER (collective = 'recv') AS received_ns,
        min(rank) AS lowest_rank,
        arg_min(seq, rank) AS lowest_seq,
        arg_min(sub, rank) AS lowest_sub,
        arg_max(rank, (start_ns, -rank)) AS last_rank
    FROM members
    WHERE identity IS NOT NULL
    GROUP BY run_id, identity
)
SELECT
    m.* EXCLUDE (identity, clock),
    CASE
        WHEN c.matched THEN concat_ws(':', c.lowest_rank, c.lowest_seq, c.lowest_sub)
        ELSE concat_ws(':', m.rank, m.seq, m.sub)
    END AS call,
    c.members - 1 AS peers,
    coalesce(c.matched, false) AS matched,
    CASE WHEN c.matched THEN c.shortest_ns END AS shortest_ns,
    CASE WHEN c.matched THEN c.largest_bytes END AS largest_bytes,
    coalesce(c.matched AND c.one_clock, false) AS one_clock,
    CASE WHEN c.matched AND c.one_clock THEN c.first_start_ns END AS first_start_ns,
    CASE WHEN c.matched AND c.one_clock THEN c.last_start_ns END AS last_start_ns,
    CASE WHEN c.matched AND c.one_clock THEN c.received_ns END AS received_ns,
    CASE WHEN c.matched AND c.one_clock THEN c.last_rank END AS last_rank
FROM members AS m
LEFT JOIN calls AS c USING (run_id, identity)
