-- Links of a run that are several times as slow as links that carry the same messages.
-- A link is a sender and a receiver, or a group of ranks in a collective. Compared are median times
-- of matched calls of one kind and size, over at least 3 links with at least 3 calls each; slow is
-- 3 times the median of the other links and over 1 ms and 10 clock ticks more. A size that is no
-- message's is the same within a stage. A link that is slow both ways is one.
-- @grain run_id, subject
-- @column subject VARCHAR | `link rank 2 -> rank 4`, `link rank 2 <-> rank 4` or `group tp 4-7`.
-- @column rank INTEGER | The sender, or the lowest rank of the group or of both ways.
-- @column peer_rank INTEGER | The receiver, or the highest rank of the group or of both ways.
-- @column calls BIGINT calls | Calls compared, of the size that lost most time.
-- @column size_bytes BIGINT bytes | Their size; NULL where it is no message's.
-- @column collective VARCHAR | send, or the collective.
-- @column time_ms DOUBLE ms | Median time of a call.
-- @column like_ms DOUBLE ms | Median over the other links of their median times.
-- @column lost_ms DOUBLE ms | What calls of all sizes, both ways, took longer than that, per step.
WITH calls AS NOT MATERIALIZED (
    SELECT
        run_id, call, step, rank, collective, group_kind, size_bytes, dtype, time_ms,
        CASE WHEN size_convention = 'declared' THEN stage END AS stage,
        CASE collective WHEN 'recv' THEN 'send' ELSE collective END AS kind
    FROM collective_calls
    WHERE matched AND NOT overlapped AND group_size > 1 AND time_ms IS NOT NULL
),
uneven AS (
    -- Medians lie between the extremes: where those are close, no link is slow.
    SELECT run_id, kind, group_kind, size_bytes, dtype
    FROM calls
    GROUP BY ALL
    HAVING max(time_ms) >= 3 * min(time_ms) AND max(time_ms) - min(time_ms) > 1
),
members AS (
    SELECT
        c.run_id, c.call, c.step,
        any_value(c.group_kind) AS group_kind,
        any_value(c.size_bytes) AS size_bytes,
        any_value(c.dtype) AS dtype,
        any_value(c.stage) AS stage,
        max(c.collective) = 'send' AS message,
        CASE WHEN message THEN 'send' ELSE min(c.collective) END AS collective,
        max(c.time_ms) AS time_ms,
        CASE WHEN message THEN max(c.rank) FILTER (c.collective = 'send') ELSE min(c.rank) END
            AS rank,
        CASE WHEN message THEN max(c.rank) FILTER (c.collective = 'recv') ELSE max(c.rank) END
            AS peer_rank
    FROM calls AS c
    SEMI JOIN uneven AS u
        ON u.run_id = c.run_id AND u.kind = c.kind
        AND u.group_kind IS NOT DISTINCT FROM c.group_kind
        AND u.size_bytes IS NOT DISTINCT FROM c.size_bytes
        AND u.dtype IS NOT DISTINCT FROM c.dtype
    GROUP BY c.run_id, c.call, c.step
),
links AS (
    SELECT
        run_id, collective, group_kind, size_bytes, dtype, stage, rank, peer_rank,
        count(*) AS calls,
        count(DISTINCT step) AS steps,
        median(time_ms) AS time_ms
    FROM members
    GROUP BY ALL
    HAVING count(*) >= 3
),
compared AS (
    SELECT
        *,
        count(*) OVER alike AS n,
        row_number() OVER (alike ORDER BY time_ms, rank, peer_rank) AS place,
        list(time_ms) OVER (
            alike ORDER BY time_ms, rank, peer_rank
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS times,
        -- The median of the sorted list without the link itself.
        (
            times[(n // 2) + (place <= n // 2)::BIGINT]
            + times[((n + 1) // 2) + (place <= (n + 1) // 2)::BIGINT]
        ) / 2 AS like_ms
    FROM links
    WINDOW alike AS (PARTITION BY run_id, collective, group_kind, size_bytes, dtype, stage)
    QUALIFY n >= 3
),
slow AS (
    SELECT
        c.*,
        collective = 'send' AND min(rank) OVER pair < max(rank) OVER pair AS both_ways,
        CASE WHEN both_ways THEN least(rank, peer_rank) ELSE rank END AS one,
        CASE WHEN both_ways THEN greatest(rank, peer_rank) ELSE peer_rank END AS other,
        CASE collective
            WHEN 'send' THEN format('link rank {} {} rank {}', one, CASE WHEN both_ways THEN '<->' ELSE '->' END, other)
            ELSE format('group {} {}-{}', group_kind, one, other)
        END AS subject,
        (time_ms - like_ms) * calls / steps AS longer_ms
    FROM compared AS c
    JOIN runs AS r USING (run_id)
    WHERE time_ms >= 3 * like_ms
        AND time_ms - like_ms > greatest(1, 10 * ns_to_ms(coalesce(r.clock_tick_ns, 0)))
    WINDOW pair AS (PARTITION BY run_id, collective, least(rank, peer_rank), greatest(rank, peer_rank))
)
SELECT
    run_id,
    subject,
    one AS rank,
    other AS peer_rank,
    calls,
    CASE WHEN stage IS NULL THEN size_bytes END AS size_bytes,
    collective, time_ms, like_ms,
    -- Of one order, so that the sum does not depend on it.
    sum(longer_ms) OVER (
        PARTITION BY run_id, subject ORDER BY longer_ms, size_bytes, collective, dtype, slow.rank
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS lost_ms
FROM slow
QUALIFY row_number() OVER (
    PARTITION BY run_id, subject ORDER BY longer_ms DESC, size_bytes, collective, dtype, slow.rank
) = 1
