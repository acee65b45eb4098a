-- Compute that a rank was measured to do in a step: the mean over the pipeline's stages.
-- Per stage it is the mean over its ranks, and over the run's whole steps without warm-up the
-- median. Rank traces have the operations, without the communication they wait for; an asynchronous
-- call stays in, for its time contains the weight-gradient kernel. Logs have the layers.
-- @grain run_id, pass, layer_kind?
-- @column pass VARCHAR | forward, backward, or finalize: the optimizer step.
-- @column layer_kind VARCHAR | Logs: embedding, block, head or other.
-- @column work_ns DOUBLE ns | Compute; NULL where an operation has no time.
-- @column overlapped BOOLEAN | Asynchronous calls are in it.
WITH steps AS (
    SELECT run_id, unnest(steps) AS step FROM _compared_steps
),
asynchronous AS (
    SELECT o.run_id, o.step, o.rank, o.op, sum(c.async_ns) AS async_ns
    FROM _op_comm AS c
    JOIN ops AS o USING (run_id, rank, seq)
    WHERE c.async_ns > 0
    GROUP BY o.run_id, o.step, o.rank, o.op
),
stages AS (
    SELECT run_id, step, stage, count(DISTINCT rank) AS ranks
    FROM _rank_step_ops
    GROUP BY run_id, step, stage
),
timed AS (
    SELECT o.*, coalesce(a.async_ns, 0) AS async_ns, s.ranks
    FROM _rank_step_ops AS o
    JOIN steps USING (run_id, step)
    JOIN stages AS s
        ON s.run_id = o.run_id AND s.step = o.step AND s.stage IS NOT DISTINCT FROM o.stage
    LEFT JOIN asynchronous AS a USING (run_id, step, rank, op)
),
per_stage AS (
    SELECT
        run_id,
        step,
        CASE kind WHEN 'optimizer' THEN 'finalize' ELSE kind END AS pass,
        NULL::VARCHAR AS layer_kind,
        CASE WHEN count(own_ns) = count(*) THEN sum(own_ns + async_ns) / min(ranks) END AS work_ns,
        sum(async_ns) > 0 AS overlapped
    FROM timed
    WHERE kind IN ('forward', 'backward', 'optimizer')
    GROUP BY run_id, step, stage, kind
    UNION ALL
    SELECT run_id, step, 'forward', layer_kind, sum(total_ns)::DOUBLE, false
    FROM layer_steps
    JOIN steps USING (run_id, step)
    GROUP BY run_id, step, layer_kind
),
per_step AS (
    SELECT
        s.run_id,
        s.pass,
        s.layer_kind,
        CASE WHEN count(s.work_ns) = count(*)
            THEN ordered_sum(s.work_ns) / min(r.pp)
        END AS work_ns,
        bool_or(s.overlapped) AS overlapped
    FROM per_stage AS s
    JOIN runs AS r USING (run_id)
    GROUP BY s.run_id, s.step, s.pass, s.layer_kind
)
SELECT
    run_id,
    pass,
    layer_kind,
    CASE WHEN count(work_ns) = count(*) THEN quantile_cont(work_ns, 0.5) END AS work_ns,
    bool_or(overlapped) AS overlapped
FROM per_step
GROUP BY run_id, pass, layer_kind
