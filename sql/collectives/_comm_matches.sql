-- Every communication with what its matched peers say about it.
-- @internal
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group.
-- @column group_size_source VARCHAR | Where the size comes from.
-- @column identity UBIGINT | Equal for the members of a call; NULL where that is not known.
-- @column call VARCHAR | Call that it is part of, named by its lowest rank: `rank:seq:sub`.
-- @column lowest_rank INTEGER | Lowest member of the call.
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
WITH calls AS (
    SELECT
        c.run_id, c.identity, c.matched, c.lowest_rank, c.members - 1 AS peers,
        c.shortest_ns, c.largest_bytes,
        CASE WHEN c.matched THEN concat_ws(':', c.lowest_rank, c.lowest_seq, c.lowest_sub) END AS call,
        coalesce(a.aligned, false) AS aligned,
        a.open_ns, a.first_start_ns, a.last_start_ns, a.sent_ns, a.received_ns, a.last_rank
    FROM _comm_calls AS c
    LEFT JOIN _call_arrivals AS a USING (run_id, identity)
)
SELECT
    i.*,
    aligned_ns(i.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
    aligned_ns(i.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns,
    coalesce(c.call, concat_ws(':', i.rank, i.seq, i.sub)) AS call,
    CASE WHEN c.matched THEN c.lowest_rank ELSE i.rank END AS lowest_rank,
    c.peers,
    coalesce(c.matched, false) AS matched,
    CASE WHEN c.matched THEN c.shortest_ns END AS shortest_ns,
    CASE WHEN c.matched THEN c.largest_bytes END AS largest_bytes,
    coalesce(c.aligned, false) AS aligned,
    CASE WHEN c.aligned THEN c.open_ns END AS uncertainty_ns,
    CASE WHEN c.aligned THEN c.first_start_ns END AS first_start_ns,
    CASE WHEN c.aligned THEN c.last_start_ns END AS last_start_ns,
    CASE WHEN c.aligned THEN c.sent_ns END AS sent_ns,
    CASE WHEN c.aligned THEN c.received_ns END AS received_ns,
    CASE WHEN c.aligned THEN c.last_rank END AS last_rank
FROM _comm_identities AS i
LEFT JOIN clock_offsets AS k USING (run_id, rank)
LEFT JOIN calls AS c USING (run_id, identity)
