-- What makes communications of several ranks one call: the same group, operation, collective, tensor and shape, and the same place in that order.
-- The place counts only among ranks that made as many such calls in as many such operations: after
-- a missing or extra one the calls that it could have shifted match nobody, and matching is in step
-- again with the next operation or step.
-- @internal
-- @grain run_id, rank, seq, sub
-- @column sub INTEGER | sub_seq, 0 where the operation itself is the communication.
-- @column group_size INTEGER ranks | Members of the group; 2 for a send and its receive.
-- @column group_size_source VARCHAR | Where the size comes from; `pair` for a send and its receive.
-- @column identity UBIGINT | Equal for the members of a call; NULL where the group is not known.
WITH op_counts AS (
    SELECT run_id, rank, step, op AS parent_op, count(*) AS ops_made
    FROM ops
    GROUP BY ALL
),
placed AS (
    SELECT
        c.* EXCLUDE (phase, raw_func, raw_group, shape, attributes),
        CASE
            -- Along the pipeline, a pair is known by its sender and the direction.
            WHEN c.collective = 'send' THEN c.rank
            WHEN c.collective = 'recv' AND c.raw_func = 'recv_forward'
                THEN (c.rank - r.world_size // r.pp + r.world_size) % r.world_size
            WHEN c.collective = 'recv' AND c.raw_func = 'recv_backward'
                THEN (c.rank + r.world_size // r.pp) % r.world_size
            ELSE g.group_key
        END AS members,
        CASE WHEN c.collective IN ('send', 'recv') THEN 2 ELSE g.group_size END AS group_size,
        CASE WHEN c.collective IN ('send', 'recv') THEN 'pair' ELSE g.group_size_source END
            AS group_size_source,
        hash(
            c.step,
            c.group_kind,
            members,
            CASE WHEN c.collective IN ('send', 'recv')
                THEN split_part(c.raw_func, '_', 2)
                ELSE c.collective
            END,
            c.tensor,
            c.dtype,
            -- Ranks of an all-to-all may hold unequal numbers of tokens.
            CASE WHEN c.collective <> 'all_to_all' THEN c.shape END,
            c.parent_op,
            n.ops_made,
            CASE WHEN c.sub_seq IS NOT NULL THEN c.micro_batch END
        ) AS alike,
        -- One number to sort by: the keys themselves make the sort several times as long.
        hash(c.run_id, c.rank, alike) AS series
    FROM comms AS c
    JOIN runs AS r USING (run_id)
    LEFT JOIN op_counts AS n USING (run_id, rank, step, parent_op)
    LEFT JOIN _rank_groups AS g
        ON g.run_id = c.run_id AND g.rank = c.rank AND g.group_kind = c.group_kind
    WHERE c.collective IS NOT NULL
)
SELECT
    * EXCLUDE (members, alike, series),
    coalesce(sub_seq, 0) AS sub,
    CASE
        WHEN members IS NOT NULL THEN hash(
            alike,
            count(*) OVER (PARTITION BY series),
            row_number() OVER (PARTITION BY series ORDER BY seq, sub_seq)
        )
    END AS identity
FROM placed
