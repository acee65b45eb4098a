-- Where the time of a step went, operation by operation; the shares of a run add up to its steps.
-- Every moment of a step is divided equally among the ranks that work in it (normalized processor
-- time: Anderson & Lazowska, Quartz, SIGMETRICS 1990). A rank works while an operation of the step
-- covers the moment and does not wait: for a sender, for members of a call, or for the last rank
-- to begin the optimizer. Steady steps, of over 16 every n-th. Needs windows: see rank_bubbles.
-- @report Where the step time went
-- @grain run_id, op, kind, stage?
-- @column op VARCHAR | Operation; a call inside one as `collective:group`, with `:async` where it was launched and waited for later; `nobody` where no rank works: messages in flight and gaps.
-- @column kind VARCHAR | compute, data, comm, overlap (a call and the kernel beside it: either may be what takes the time), p2p, optimizer, or wait where nobody works.
-- @column stage INTEGER | Stage of the ranks; NULL for `nobody`.
-- @column share_ms DOUBLE ms | Its part of a step, mean over the steps.
-- @column share_ratio DOUBLE | Its part of the steps' time.
-- @column steps BIGINT steps | Steps that were divided.
-- @column step_mean_ms DOUBLE ms | Their mean time, which the shares add up to.
WITH changes AS (
    -- Ranks that begin or end to work. A call whose members do not wait changes nothing.
    SELECT run_id, step, ready_ns AS at_ns, 1 AS ranks FROM _work_spans
    UNION ALL
    SELECT run_id, step, CASE WHEN holder IS NULL THEN to_ns ELSE from_ns END, -1 FROM _work_spans
    UNION ALL
    SELECT run_id, step, to_ns, 0 FROM _work_spans WHERE holder IS NOT NULL
    UNION ALL
    SELECT run_id, step, unnest([from_ns, to_ns]), 0 FROM _shared_steps
),
moments AS (
    SELECT
        run_id, step, at_ns,
        coalesce(lead(at_ns) OVER step_order - at_ns, 0) AS lasts_ns,
        sum(sum(ranks)) OVER step_order AS working
    FROM changes
    GROUP BY run_id, step, at_ns
    WINDOW step_order AS (PARTITION BY run_id, step ORDER BY at_ns)
),
clocks AS (
    -- A clock that goes by a rank's part of each moment: the share of a span is what it shows at
    -- the end less what it shows at the start. In whole millionths of a ns, so that it is the same
    -- in whatever order moments are added.
    SELECT
        run_id, step, at_ns,
        coalesce(sum(
            CASE WHEN working > 0 THEN (1000000 * lasts_ns::HUGEINT + working // 2) // working END
        ) OVER (
            PARTITION BY run_id, step ORDER BY at_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS clock
    FROM moments
),
spans AS (
    SELECT s.*, t.clock - r.clock AS share, t.clock - f.clock AS held_share
    FROM _work_spans AS s
    JOIN clocks AS r ON r.run_id = s.run_id AND r.step = s.step AND r.at_ns = s.ready_ns
    JOIN clocks AS t ON t.run_id = s.run_id AND t.step = s.step AND t.at_ns = s.to_ns
    LEFT JOIN clocks AS f
        ON s.holder IS NOT NULL AND f.run_id = s.run_id AND f.step = s.step AND f.at_ns = s.from_ns
),
shares AS (
    SELECT run_id, op, kind, stage, sum(share) AS share FROM spans GROUP BY ALL
    UNION ALL
    -- What a call takes, the operation that holds it has not.
    SELECT run_id, holder, holder_kind, stage, -sum(held_share) FROM spans
    WHERE holder IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT run_id, 'nobody', 'wait', NULL, 1000000 * sum(CASE working WHEN 0 THEN lasts_ns ELSE 0 END)
    FROM moments
    GROUP BY run_id
),
totals AS (
    SELECT run_id, count(*) AS steps, sum(to_ns - from_ns) AS total_ns
    FROM _shared_steps
    GROUP BY run_id
)
SELECT
    s.run_id,
    s.op,
    s.kind,
    s.stage,
    ns_to_ms(sum(s.share) / 1000000 / t.steps) AS share_ms,
    ratio(sum(s.share) / 1000000, t.total_ns) AS share_ratio,
    t.steps,
    ns_to_ms(t.total_ns / t.steps) AS step_mean_ms
FROM shares AS s
JOIN totals AS t USING (run_id)
GROUP BY s.run_id, s.op, s.kind, s.stage, t.steps, t.total_ns
