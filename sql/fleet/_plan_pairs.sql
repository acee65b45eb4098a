-- The plan that goes with each measured run: one of the same configuration, the likest of several.
-- World size, tp, pp and micro-batches must be known of both and equal; what else both know must
-- agree: dp, cp, ep, layers, batch sizes, and for traces whether there are experts. Models are
-- spelled differently by every format: an equal name only decides between plans, then the latest.
-- @scope fleet
-- @grain run_id
-- @column plan_run_id VARCHAR | Run of the plan.
WITH plans AS (
    SELECT
        run_id,
        coalesce(bool_or(group_kind = 'expert'), false) AS experts
    FROM _planned_work
    GROUP BY run_id
),
experts AS (
    SELECT run_id, bool_or(group_kind IN ('expert', 'tp_expert')) AS experts
    FROM _measured_comm
    GROUP BY run_id
),
blocks AS (
    -- A log names every block of the model where it shows every stage.
    SELECT run_id, max(s.layer_index)::BIGINT + 1 AS layers
    FROM layer_stats AS s
    JOIN _compared_steps AS c USING (run_id)
    WHERE c.reason IS NULL
    GROUP BY run_id
),
known AS (
    SELECT
        r.run_id,
        p.run_id IS NOT NULL AS planned,
        r.run_date,
        [r.world_size, r.tp, r.pp, r.micro_batches] AS shape,
        [
            r.dp, r.cp, r.ep, r.micro_batch_size, r.global_batch_size,
            coalesce(
                r.layers,
                -- Generators write layers per stage as vpp.
                CASE WHEN p.run_id IS NOT NULL AND r.topology_source['vpp'] = 'printed'
                    THEN r.vpp::BIGINT * r.pp
                END,
                b.layers
            ),
            coalesce(p.experts, e.experts)::INTEGER
        ] AS sizes,
        lower(r.model) AS model
    FROM _fleet_runs AS f
    JOIN runs AS r USING (run_id)
    LEFT JOIN plans AS p USING (run_id)
    LEFT JOIN _compared_steps AS c USING (run_id)
    LEFT JOIN experts AS e USING (run_id)
    LEFT JOIN blocks AS b USING (run_id)
    WHERE (p.run_id IS NOT NULL OR c.run_id IS NOT NULL)
        AND r.world_size::BIGINT + r.tp + r.pp + r.micro_batches IS NOT NULL
),
-- Plans alike in all that counts are weighed as one, and so are runs: what is left to pair is few.
latest AS (
    SELECT
        shape, sizes, model,
        max(run_date) AS run_date,
        arg_min(run_id, (-epoch_us(run_date), run_id)) AS plan_run_id
    FROM known
    SEMI JOIN plans USING (run_id)
    GROUP BY shape, sizes, model
),
wanted AS (
    SELECT DISTINCT shape, sizes, model FROM known WHERE NOT planned
),
weighed AS (
    SELECT
        w.*,
        l.plan_run_id,
        l.run_date,
        list_transform(list_zip(w.sizes, l.sizes), lambda pair: pair[1] = pair[2]) AS agreed,
        coalesce(w.model = l.model, false) AS same_model
    FROM wanted AS w
    JOIN latest AS l ON l.shape = w.shape
),
chosen AS (
    SELECT
        shape, sizes, model,
        arg_min(
            plan_run_id,
            (-len(list_filter(agreed, lambda same: same)), NOT same_model, -epoch_us(run_date), plan_run_id)
        ) AS plan_run_id
    FROM weighed
    WHERE NOT coalesce(list_contains(agreed, false), false)
    GROUP BY shape, sizes, model
)
SELECT k.run_id, c.plan_run_id
FROM known AS k
JOIN chosen AS c
    ON c.shape = k.shape
    AND c.sizes IS NOT DISTINCT FROM k.sizes
    AND c.model IS NOT DISTINCT FROM k.model
WHERE NOT k.planned
