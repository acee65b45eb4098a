-- Every communication with what its matched peers say about it.
-- @grain run_id, rank, seq, sub
-- @column lowest_rank INTEGER | Lowest member of the call that it is part of.
-- @column uncertainty_ns BIGINT ns | How far off the difference of two members' times can be; 0 on one clock.
-- @column begin_ns BIGINT ns | Own start on the reference clock, or on the one clock of the members.
-- @column finish_ns BIGINT ns | Own end, likewise.
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
