-- Communications of several ranks that are one call, by the ranks' own clocks.
-- @grain run_id, identity
-- @column matched BOOLEAN | All members of the group were seen making this call, if there are several with times.
-- @column members BIGINT ranks | Members seen.
-- @column lowest_rank INTEGER | Lowest member.
-- @column lowest_seq BIGINT | Operation that it is, or is part of, on that rank.
-- @column lowest_sub INTEGER | Its number within that operation; 0 for the operation itself.
-- @column lowest_sends BOOLEAN | The lowest member sends.
-- @column shortest_ns BIGINT ns | Shortest duration among the members.
-- @column largest_bytes BIGINT bytes | Largest input tensor among the members.
-- @column first_start_ns BIGINT ns | Earliest start of a member.
-- @column last_start_ns BIGINT ns | Latest start of a member.
-- @column sent_ns BIGINT ns | Start of a message's sender.
-- @column received_ns BIGINT ns | End of a message's receiver.
-- @column last_rank INTEGER | Member with the latest start, the lowest of several.
-- @column early_ns BIGINT ns | How long before the start of some member another was done: above 0 only if their clocks differ, because nobody is done before all have begun. NULL where that does not hold, or peers were not seen.
WITH calls AS (
    SELECT
        run_id,
        identity,
        min(group_kind) AS group_kind,
        min(collective) AS collective,
        count(*) AS members,
        count(*) = max(group_size)
            AND (members = 1 OR bool_and(start_ns IS NOT NULL AND duration_ns IS NOT NULL))
            AS matched,
        -- The lowest member in one number, which is compared faster than several.
        min(
            (rank * 9223372036854775808::HUGEINT + seq) * 4294967296
                + 2 * sub::BIGINT + (collective = 'send')::TINYINT
        ) AS lowest,
        min(duration_ns) AS shortest_ns,
        max(bytes) AS largest_bytes,
        min(start_ns) AS first_start_ns,
        max(start_ns) AS last_start_ns,
        min(end_ns) AS first_end_ns,
        max(start_ns) FILTER (collective = 'send') AS sent_ns,
        max(end_ns) FILTER (collective = 'recv') AS received_ns,
        -- Of the latest starts that of the lowest rank, likewise.
        max(start_ns * 4294967296::HUGEINT - rank) AS last
    FROM _comm_identities
    WHERE identity IS NOT NULL
    GROUP BY run_id, identity
)
SELECT
    run_id, identity, group_kind, collective, members, matched, shortest_ns, largest_bytes,
    (lowest >> 95)::INTEGER AS lowest_rank,
    ((lowest >> 32) & 9223372036854775807)::BIGINT AS lowest_seq,
    ((lowest >> 1) & 2147483647)::INTEGER AS lowest_sub,
    (lowest & 1) = 1 AS lowest_sends,
    first_start_ns, last_start_ns, sent_ns, received_ns,
    (last_start_ns * 4294967296::HUGEINT - last)::INTEGER AS last_rank,
    CASE
        WHEN NOT matched OR members = 1 OR collective IN ('broadcast', 'reduce') THEN NULL
        WHEN sent_ns IS NOT NULL THEN sent_ns - received_ns
        ELSE last_start_ns - first_end_ns
    END AS early_ns
FROM calls
