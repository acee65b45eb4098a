-- How a rank compares in a step with peers that did the same work: same stage, operation and calls.
-- @grain run_id, step, op, rank
-- @column op VARCHAR | Operation, `forward_backward` for the sum of forward and backward steps, or `all_kernels` for that of the computing kernels of a trace without passes.
-- @column in_verdict BOOLEAN | The row that verdicts count: forward_backward or all_kernels. The others hide waits or belong to the first tensor-parallel rank alone, and are shown only.
-- @column own_ms DOUBLE ms | Durations without the communication inside.
-- @column peers BIGINT ranks | Other ranks of the stage that made as many calls.
-- @column peers_median_ms DOUBLE ms | Median of own_ms over the peers.
-- @column slowdown DOUBLE | own_ms over peers_median_ms; NULL without a peer.
-- @column excess_ms DOUBLE ms | own_ms without peers_median_ms.
-- @column slow BOOLEAN | Slowdown of 1.10 or more, and an excess over 1 ms and over 10 clock ticks.
-- @column culprit BOOLEAN | The slow rank of the step with the largest excess, the lowest of equal ones, in its row that verdicts count.
-- @column warmup BOOLEAN | Leading step that verdicts leave out, as in step_stats.
-- @column calls BIGINT calls | How often the operation ran.
-- @column own_ns BIGINT ns | own_ms, exactly.
-- @column kind VARCHAR | What the operation does, as in ops; `forward_backward` or `all_kernels` for a sum.
WITH rows_of AS (
    SELECT run_id, step, rank, stage, op, kind, calls, own_ns FROM _rank_step_ops
    UNION ALL
    SELECT
        run_id, step, rank, min(stage), whole, whole, sum(calls)::BIGINT,
        CASE WHEN count(own_ns) = count(*) THEN try_cast(sum(own_ns) AS BIGINT) END
    FROM (
        SELECT *, 'forward_backward' AS whole FROM _rank_step_ops WHERE kind IN ('forward', 'backward')
        UNION ALL
        SELECT *, 'all_kernels' FROM _rank_step_ops SEMI JOIN _kernel_runs USING (run_id)
    )
    GROUP BY run_id, step, rank, whole
),
ranked AS (
    SELECT
        *,
        count(*) OVER alike AS n,
        row_number() OVER (alike ORDER BY own_ns, rank) AS place
    FROM rows_of
    WHERE own_ns IS NOT NULL
    WINDOW alike AS (PARTITION BY run_id, step, stage, op, calls)
),
-- The median of the others stands in the middle of the sorted list that skips the rank itself.
medians AS (
    SELECT
        *,
        (
            nth_value(own_ns::HUGEINT, (n // 2) + (place <= n // 2)::BIGINT) OVER sorted
            + nth_value(own_ns::HUGEINT, ((n + 1) // 2) + (place <= (n + 1) // 2)::BIGINT) OVER sorted
        ) / 2 AS median_ns
    FROM ranked
    WHERE n > 1 AND stage IS NOT NULL
    WINDOW sorted AS (
        PARTITION BY run_id, step, stage, op, calls ORDER BY own_ns, rank
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
),
compared AS (
    SELECT
        r.*,
        coalesce(r.kind IN ('forward_backward', 'all_kernels'), false) AS in_verdict,
        coalesce(m.n - 1, 0) AS peers,
        m.median_ns,
        ratio(r.own_ns, m.median_ns) AS slowdown,
        r.own_ns - m.median_ns AS excess_ns,
        ratio(r.own_ns, m.median_ns) >= 1.10
            AND r.own_ns - m.median_ns > greatest(1000000, 10 * coalesce(t.clock_tick_ns, 0)) AS slow
    FROM rows_of AS r
    LEFT JOIN medians AS m USING (run_id, step, rank, op)
    JOIN runs AS t USING (run_id)
)
SELECT
    c.run_id,
    c.step,
    c.op,
    c.rank,
    c.stage,
    c.in_verdict,
    ns_to_ms(c.own_ns) AS own_ms,
    c.peers,
    ns_to_ms(c.median_ns) AS peers_median_ms,
    c.slowdown,
    ns_to_ms(c.excess_ns) AS excess_ms,
    c.slow,
    coalesce(c.in_verdict AND c.slow, false) AND row_number() OVER (
        PARTITION BY c.run_id, c.step, c.in_verdict AND c.slow ORDER BY c.excess_ns DESC, c.rank
    ) = 1 AS culprit,
    coalesce(s.warmup, false) AS warmup,
    CASE
        WHEN c.slowdown IS NOT NULL THEN NULL
        WHEN c.own_ns IS NULL THEN 'not_timed'
        WHEN c.stage IS NULL THEN 'topology_unknown'
        WHEN c.peers = 0 THEN 'no_peer'
        ELSE 'below_clock_resolution'
    END AS reason,
    c.calls,
    c.own_ns,
    c.kind
FROM compared AS c
LEFT JOIN step_stats AS s ON s.run_id = c.run_id AND s.step = c.step
