-- What makes communications of several ranks one call: the same group, operation, collective, tensor and shape, and the same place in that order.
-- Within an operation, and of a message, the place counts in the pass that it belongs to, among ranks
-- that made as many passes: where a line was lost, only the calls of that line match nobody. Where it
-- cannot be told which line that was, the calls that it could have shifted match nobody, and matching
-- is in step again with the next step.
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group; 2 for a send and its receive.
-- @column group_size_source VARCHAR | Where the size comes from; `pair` for a send and its receive.
-- @column identity UBIGINT | Equal for the members of a call; NULL where the group is not known, or the rank's step is another than that of its number.
WITH slots AS (
    SELECT *, count(*) OVER (PARTITION BY run_id) > 1 AS beside_others FROM _rank_slots
),
-- Twice in the query, but each time for other runs: for none it is not computed.
placed AS NOT MATERIALIZED (
    SELECT
        c.run_id, c.rank, c.step, c.seq, c.sub_seq, c.collective, c.group_kind, c.bytes,
        c.start_ns, c.end_ns, c.duration_ns,
        -- What only collective_calls shows: to carry it is cheaper than to join it again.
        c.source_id, c.line, c.stage, c.micro_batch, c.dtype, c.parent_op, c.tensor, c.caller,
        coalesce(c.overlapped, false) AS overlapped,
        c.collective IN ('send', 'recv') AS message,
        message OR c.sub_seq IS NOT NULL AS in_pass,
        CASE
            -- Along the pipeline, a pair is known by its sender and the direction; without one nothing tells the peer.
            WHEN c.collective = 'send' AND c.pass IS NOT NULL THEN n.slot
            WHEN c.collective = 'recv' AND c.pass = 'forward'
                THEN (n.slot - ranks_per_stage(r.world_size, r.pp) + r.world_size) % r.world_size
            WHEN c.collective = 'recv' AND c.pass = 'backward'
                THEN (n.slot + ranks_per_stage(r.world_size, r.pp)) % r.world_size
            WHEN NOT message THEN g.group_key
        END AS members,
        CASE WHEN message THEN 2 ELSE coalesce(c.group_size, g.group_size) END AS group_size,
        CASE
            WHEN message THEN 'pair'
            WHEN c.group_size IS NOT NULL THEN 'printed'
            ELSE g.group_size_source
        END AS group_size_source,
        d.step IS NULL AND (p.pass_number IS NOT NULL OR p.passes IS NULL OR NOT in_pass)
            AS numbered,
        CASE WHEN members IS NOT NULL AND numbered THEN hash(
            c.step,
            c.group_kind,
            members,
            CASE WHEN message THEN c.pass ELSE c.collective END,
            c.tensor,
            c.dtype,
            -- Ranks of an all-to-all may hold unequal numbers of tokens.
            CASE WHEN c.collective <> 'all_to_all' THEN c.shape END,
            c.parent_op,
            CASE WHEN in_pass THEN p.passes END,
            CASE WHEN in_pass THEN p.pass_number END
        ) END AS alike,
        -- One number to sort by: the keys themselves make the sort several times as long.
        hash(c.run_id, c.rank, alike) AS series,
        n.beside_others
    FROM comms AS c
    JOIN runs AS r USING (run_id)
    JOIN slots AS n USING (run_id, rank)
    LEFT JOIN _op_passes AS p USING (run_id, rank, seq)
    LEFT JOIN _step_shifts AS d ON d.run_id = c.run_id AND d.rank = c.rank AND d.step = c.step
    LEFT JOIN _rank_groups AS g
        ON g.run_id = c.run_id AND g.rank = c.rank AND g.group_kind = c.group_kind
    WHERE c.collective IS NOT NULL
)
SELECT
    * EXCLUDE (message, in_pass, members, numbered, alike, series, beside_others),
    coalesce(sub_seq, 0) AS sub,
    CASE WHEN alike IS NOT NULL THEN hash(
        alike,
        count(*) OVER (ordered ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING),
        row_number() OVER ordered
    ) END AS identity
FROM placed
WHERE beside_others
WINDOW ordered AS (PARTITION BY series ORDER BY seq, sub_seq)
UNION ALL
-- Where no other rank was seen, no call has members to find.
SELECT
    * EXCLUDE (message, in_pass, members, numbered, alike, series, beside_others),
    coalesce(sub_seq, 0),
    CASE WHEN alike IS NOT NULL THEN hash(run_id, seq, sub_seq) END
FROM placed
WHERE NOT beside_others
