-- Every communication with what its matched peers say about it.
-- @internal
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group.
-- @column group_size_source VARCHAR | Where the size comes from.
-- @column call VARCHAR | Call that it is part of, named by its lowest rank: `rank:seq:sub`.
-- @column peers BIGINT ranks | Other members of the call that were seen.
-- @column matched BOOLEAN | All members of the group were seen making this call, if there are several with times.
-- @column shortest_ns BIGINT ns | Shortest duration among the members.
-- @column largest_bytes BIGINT bytes | Largest input tensor among the members.
-- @column aligned BOOLEAN | The members' times can be compared: one clock, or clocks that were related.
-- @column uncertainty_ns BIGINT ns | How far off the difference of two members' times can be; 0 on one clock.
-- @column begin_ns BIGINT ns | Own start on the reference clock, or on the one clock of the members.
-- @column finish_ns BIGINT ns | Own end, likewise.
-- @column first_start_ns BIGINT ns | When the first member arrived.
-- @column last_start_ns BIGINT ns | When the last member arrived.
-- @column sent_ns BIGINT ns | When the sender of a message started.
-- @column received_ns BIGINT ns | When the receiver of a message had it.
-- @column last_rank INTEGER | Member that arrived last, the lowest of several; NULL where clocks do not tell which.
WITH members AS (
    SELECT
        i.*,
        k.clock, k.offset_ns, k.uncertainty_ns, k.anchor, k.near_ns,
        aligned_ns(i.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
        aligned_ns(i.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns
    FROM _comm_identities AS i
    LEFT JOIN clock_offsets AS k USING (run_id, rank)
),
by_clock AS (
    SELECT
        run_id, identity, clock,
        bool_and(offset_ns IS NOT NULL) AS known,
        min(anchor) AS anchor,
        min(near_ns) AS near_ns,
        min(uncertainty_ns) AS uncertainty_ns,
        min(begin_ns) AS first_start_ns,
        max(begin_ns) AS last_start_ns,
        max(begin_ns) FILTER (collective = 'send') AS sent_ns,
        max(finish_ns) FILTER (collective = 'recv') AS received_ns,
        arg_max(rank, (begin_ns, -rank)) AS last_rank
    FROM members
    SEMI JOIN (SELECT run_id, identity FROM _comm_calls WHERE matched AND members > 1) AS matched_calls
        USING (run_id, identity)
    GROUP BY run_id, identity, clock
),
arrivals AS (
    SELECT
        run_id,
        identity,
        count(*) = 1 AND count(clock) = 1 AS one_clock,
        one_clock OR bool_and(known) AS aligned,
        clocks_open_ns(anchor, near_ns, uncertainty_ns) AS open_ns,
        min(first_start_ns) AS first_start_ns,
        max(last_start_ns, 2) AS latest_ns,
        max(sent_ns) AS sent_ns,
        max(received_ns) AS received_ns,
        -- Between clocks the last is known only if the next one came earlier than they can be off.
        CASE WHEN one_clock OR latest_ns[1] - latest_ns[2] >= open_ns
            THEN arg_max(last_rank, (last_start_ns, -last_rank))
        END AS last_rank
    FROM by_clock
    GROUP BY run_id, identity
)
SELECT
    m.* EXCLUDE (identity, clock, offset_ns, uncertainty_ns, anchor, near_ns),
    CASE
        WHEN c.matched THEN concat_ws(':', c.lowest_rank, c.lowest_seq, c.lowest_sub)
        ELSE concat_ws(':', m.rank, m.seq, m.sub)
    END AS call,
    c.members - 1 AS peers,
    coalesce(c.matched, false) AS matched,
    CASE WHEN c.matched THEN c.shortest_ns END AS shortest_ns,
    CASE WHEN c.matched THEN c.largest_bytes END AS largest_bytes,
    coalesce(a.aligned, false) AS aligned,
    CASE WHEN a.aligned THEN a.open_ns END AS uncertainty_ns,
    CASE WHEN a.aligned THEN a.first_start_ns END AS first_start_ns,
    CASE WHEN a.aligned THEN a.latest_ns[1] END AS last_start_ns,
    CASE WHEN a.aligned THEN a.sent_ns END AS sent_ns,
    CASE WHEN a.aligned THEN a.received_ns END AS received_ns,
    CASE WHEN a.aligned THEN a.last_rank END AS last_rank
FROM members AS m
LEFT JOIN _comm_calls AS c USING (run_id, identity)
LEFT JOIN arrivals AS a USING (run_id, identity)
