-- Every communication with what its matched peers say about it.
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group.
-- @column group_size_source VARCHAR | Where the size comes from.
-- @column identity UBIGINT | Equal for the members of a call; NULL where that is not known.
-- @column lowest_rank INTEGER | Lowest member of the call that it is part of.
-- @column lowest_seq BIGINT | Operation that the call is, or is part of, on that rank.
-- @column lowest_sub INTEGER | Its number within that operation; 0 for the operation itself.
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
SELECT
    i.* EXCLUDE (start_ns, end_ns),
    aligned_ns(i.start_ns, k.offset_ns, k.drift, k.origin_ns) AS begin_ns,
    aligned_ns(i.end_ns, k.offset_ns, k.drift, k.origin_ns) AS finish_ns,
    coalesce(c.lowest_rank, i.rank) AS lowest_rank,
    coalesce(c.lowest_seq, i.seq) AS lowest_seq,
    coalesce(c.lowest_sub, i.sub) AS lowest_sub,
    c.peers,
    coalesce(c.matched, false) AS matched,
    c.shortest_ns, c.largest_bytes,
    coalesce(c.aligned, false) AS aligned,
    c.open_ns AS uncertainty_ns,
    c.first_start_ns, c.last_start_ns, c.sent_ns, c.received_ns, c.last_rank
FROM _comm_identities AS i
LEFT JOIN clock_offsets AS k USING (run_id, rank)
LEFT JOIN _call_arrivals AS c USING (run_id, identity)
