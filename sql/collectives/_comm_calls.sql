-- Communications of several ranks that are one call, by the ranks' own clocks.
-- @internal
-- @grain run_id, identity
-- @column identity UBIGINT | Equal for the members of a call.
-- @column matched BOOLEAN | All members of the group were seen making this call, if there are several with times.
-- @column members BIGINT ranks | Members seen.
-- @column lowest_rank INTEGER | Lowest member.
-- @column lowest_seq BIGINT | Operation that it is, or is part of, on that rank.
-- @column lowest_sub INTEGER | Its number within that operation; 0 for the operation itself.
-- @column lowest_collective VARCHAR | What the lowest member does: of a pair, whether it sends.
-- @column shortest_ns BIGINT ns | Shortest duration among the members.
-- @column largest_bytes BIGINT bytes | Largest input tensor among the members.
-- @column early_ns BIGINT ns | How long before the start of some member another was done: above 0 only if their clocks differ, because nobody is done before all have begun. NULL where that does not hold, or peers were not seen.
SELECT
    run_id,
    identity,
    min(group_kind) AS group_kind,
    count(*) AS members,
    count(*) = max(group_size)
        AND (members = 1 OR (count(start_ns) = members AND count(duration_ns) = members))
        AS matched,
    min(rank) AS lowest_rank,
    arg_min(seq, rank) AS lowest_seq,
    arg_min(sub, rank) AS lowest_sub,
    arg_min(collective, rank) AS lowest_collective,
    min(duration_ns) AS shortest_ns,
    max(bytes) AS largest_bytes,
    CASE
        WHEN NOT matched OR members = 1 OR min(collective) IN ('broadcast', 'reduce') THEN NULL
        WHEN max(collective) = 'send'
            THEN max(start_ns) FILTER (collective = 'send') - max(end_ns) FILTER (collective = 'recv')
        ELSE max(start_ns) - min(end_ns)
    END AS early_ns
FROM _comm_identities
WHERE identity IS NOT NULL
GROUP BY run_id, identity
