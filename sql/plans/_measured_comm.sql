-- Communication that a rank was measured to make in a step: the mean over the pipeline's stages.
-- Per stage it is the mean over its ranks and the run's whole steps without warm-up. A message
-- counts where it is sent.
-- @grain run_id, pass?, collective, group_kind?
-- @column pass VARCHAR | forward, backward, finalize (after the backward passes), or NULL: loading data and the loss.
-- @column calls DOUBLE calls | Communications of more than 0 bytes.
-- @column moved_bytes DOUBLE bytes | Their sizes S, summed; NULL where one has none.
-- @column comm_ns DOUBLE ns | Their times, summed; NULL where one has none.
-- @column busbw_gbps DOUBLE GB/s | Of all calls that have one: bytes on the bus over time.
WITH steps AS (
    SELECT run_id, unnest(steps) AS step FROM _compared_steps
),
works AS (
    SELECT
        run_id, rank, seq,
        CASE
            WHEN kind IN ('forward', 'backward', 'send') THEN pass
            WHEN category IN ('collective', 'optimizer') THEN 'finalize'
        END AS pass
    FROM ops
),
stages AS (
    SELECT run_id, stage, count(DISTINCT (rank, step)) AS rank_steps
    FROM _rank_step_ops
    JOIN steps USING (run_id, step)
    GROUP BY run_id, stage
),
calls AS (
    SELECT
        c.run_id, c.stage, w.pass, c.collective, c.group_kind, c.group_size, c.size_bytes,
        c.busbw_gbps,
        CASE
            WHEN c.size_convention = 'declared' THEN 'declared_size'
            WHEN c.size_bytes IS NOT NULL THEN NULL
            WHEN c.collective = 'all_gather' AND c.group_size IS NULL THEN 'group_size_unknown'
            ELSE 'size_unknown'
        END AS reason,
        -- Whole again: a sum of whole nanoseconds is the same in every order.
        try_cast(round(c.time_ms * 1e6) AS BIGINT) AS time_ns
    FROM collective_calls AS c
    JOIN steps USING (run_id, step)
    JOIN works AS w ON w.run_id = c.run_id AND w.rank = c.rank AND w.seq = c.seq
    WHERE c.collective <> 'recv' AND c.duration_ms IS NOT NULL AND c.size_bytes IS DISTINCT FROM 0
),
per_stage AS (
    SELECT
        run_id, stage, pass, collective, group_kind,
        count(*) AS calls,
        sum(size_bytes) AS bytes,
        sum(time_ns) AS comm_ns,
        count(*) - count(time_ns) AS untimed,
        sum(size_bytes) FILTER (busbw_gbps IS NOT NULL) AS timed_bytes,
        sum(time_ns) FILTER (busbw_gbps IS NOT NULL) AS timed_ns,
        min(group_size) AS group_size,
        min(reason) AS reason
    FROM calls
    GROUP BY ALL
)
SELECT
    p.run_id,
    p.pass,
    p.collective,
    p.group_kind,
    ordered_sum(p.calls / s.rank_steps) / min(r.pp) AS calls,
    CASE WHEN min(p.reason) IS NULL THEN ordered_sum(p.bytes / s.rank_steps) / min(r.pp) END
        AS moved_bytes,
    CASE WHEN sum(p.untimed) = 0 THEN ordered_sum(p.comm_ns / s.rank_steps) / min(r.pp) END
        AS comm_ns,
    ratio(sum(p.timed_bytes), sum(p.timed_ns)) * bus_factor(p.collective, min(p.group_size))
        AS busbw_gbps,
    min(p.group_size) AS group_size,
    min(p.reason) AS reason
FROM per_stage AS p
JOIN stages AS s ON s.run_id = p.run_id AND s.stage = p.stage
JOIN runs AS r ON r.run_id = p.run_id
GROUP BY p.run_id, p.pass, p.collective, p.group_kind
