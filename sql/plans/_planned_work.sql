-- What a plan lets a rank do in a step: the mean over the stages of the pipeline it plans.
-- A plan lists the layers of one stage, and beside them an embedding and a head of which a pipeline
-- has one each: these count by 1 / pp.
-- @grain run_id, kind, pass?, collective?, group_kind?, layer_kind?
-- @column kind VARCHAR | collective, compute, or layer: forward compute by kind of layer.
-- @column pass VARCHAR | forward, backward (both gradients), or finalize (gradient synchronisation and update).
-- @column layer_kind VARCHAR | embedding, block or head.
-- @column calls DOUBLE calls | Communications of more than 0 bytes.
-- @column moved_bytes DOUBLE bytes | Their sizes S, summed; NULL where the plan's pp_comm is no size.
-- @column work_ns DOUBLE ns | Compute of the profiled rows.
-- @column unprofiled_rows BIGINT rows | Rows of the plan left out of work_ns: placeholders under 1,000 ns.
WITH rows_alike AS (
    SELECT
        run_id, layer, pass, collective,
        CASE group_kind WHEN 'dp_ep' THEN 'expert_dp' ELSE group_kind END AS group_kind,
        count(*) FILTER (collective IS NOT NULL AND bytes > 0) AS calls,
        sum(bytes) FILTER (collective IS NOT NULL AND bytes > 0) AS bytes,
        sum(compute_ns) FILTER (compute_ns >= 1000) AS compute_ns,
        count(*) FILTER (compute_ns < 1000) AS unprofiled_rows
    FROM workload_passes
    WHERE pass IS NOT NULL
    GROUP BY ALL
),
named AS (
    SELECT
        *,
        CASE
            WHEN regexp_matches(layer, '^(optimizer|grad_|moe_grad_|embedding_(grads|norm)|(layer)?norm$)')
                THEN 'update'
            WHEN regexp_matches(layer, '^embed') THEN 'embedding'
            WHEN regexp_matches(layer, '^(final|cross_entropy|lm_head|logit)') THEN 'head'
            ELSE 'block'
        END AS part
    FROM rows_alike
),
placed AS (
    SELECT
        n.*,
        CASE
            WHEN part = 'update' THEN 'finalize'
            WHEN pass = 'forward' THEN 'forward'
            ELSE 'backward'
        END AS compute_pass,
        -- The weight-gradient column synchronises gradients.
        CASE WHEN pass = 'weight_grad' THEN 'finalize' ELSE compute_pass END AS comm_pass,
        CASE WHEN part IN ('embedding', 'head') THEN r.pp ELSE 1 END AS stages
    FROM named AS n
    JOIN runs AS r USING (run_id)
),
comm AS (
    SELECT
        run_id, comm_pass AS pass, collective, group_kind, stages,
        sum(calls)::DOUBLE AS calls,
        sum(bytes)::DOUBLE AS bytes
    FROM placed
    WHERE calls > 0
    GROUP BY ALL
    UNION ALL
    -- The header's pp_comm is what a micro-batch sends to the next stage, and its gradient back.
    SELECT
        run_id,
        unnest(['forward', 'backward']),
        'send',
        'pp',
        pp,
        micro_batches::DOUBLE * (pp - 1),
        micro_batches::DOUBLE * (pp - 1) * CASE WHEN sent < 9e18 THEN round(sent) END
    FROM (SELECT *, try_cast(attributes['pp_comm'] AS DOUBLE) AS sent FROM runs) AS headers
    WHERE pp > 1 AND sent > 0
),
compute AS (
    SELECT
        run_id, compute_pass AS pass, part, stages,
        sum(compute_ns)::DOUBLE AS compute_ns,
        sum(unprofiled_rows) AS unprofiled_rows
    FROM placed
    GROUP BY ALL
),
sizes AS (
    SELECT
        run_id,
        CASE group_kind WHEN 'dp_ep' THEN 'expert_dp' ELSE group_kind END AS group_kind,
        min(group_size) AS group_size
    FROM workload_comm
    GROUP BY ALL
)
SELECT
    c.run_id,
    'collective' AS kind,
    c.pass,
    c.collective,
    c.group_kind,
    ordered_sum(c.calls / c.stages) AS calls,
    ordered_sum(c.bytes / c.stages) AS moved_bytes,
    CASE c.group_kind WHEN 'pp' THEN 2 ELSE min(s.group_size) END AS group_size
FROM comm AS c
LEFT JOIN sizes AS s ON s.run_id = c.run_id AND s.group_kind = c.group_kind
GROUP BY c.run_id, c.pass, c.collective, c.group_kind
UNION ALL BY NAME
SELECT
    run_id, 'compute' AS kind, pass,
    ordered_sum(compute_ns / stages) AS work_ns, sum(unprofiled_rows)::BIGINT AS unprofiled_rows
FROM compute
GROUP BY run_id, pass
UNION ALL BY NAME
SELECT
    run_id, 'layer' AS kind, pass, part AS layer_kind,
    ordered_sum(compute_ns / stages) AS work_ns, sum(unprofiled_rows)::BIGINT AS unprofiled_rows
FROM compute
WHERE pass = 'forward'
GROUP BY run_id, pass, part
