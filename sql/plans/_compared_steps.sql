-- Steps of a measured run that a plan can be held against, or why there are none.
-- Whole steps without warm-up: every stage was seen, and nothing of it is cut or lost.
-- @grain run_id
-- @column traced BOOLEAN | A rank trace; else a log.
-- @column steps INTEGER[] | The steps.
WITH seen AS (
    SELECT run_id, step, true AS traced, count(DISTINCT stage) AS stages
    FROM _rank_step_ops
    GROUP BY run_id, step
    UNION ALL
    SELECT run_id, step, false, count(DISTINCT stage)
    FROM layer_times
    GROUP BY run_id, step
),
pieces AS (
    SELECT run_id, step, bool_or(reason IS NOT DISTINCT FROM 'stages_missing') AS lost
    FROM layer_steps
    GROUP BY run_id, step
),
judged AS (
    SELECT
        s.run_id,
        s.step,
        n.traced,
        s.warmup,
        coalesce(p.lost, false) OR n.stages IS DISTINCT FROM r.pp AS missing,
        s.reason IS NOT DISTINCT FROM 'step_unfinished' AS cut
    FROM step_stats AS s
    JOIN runs AS r USING (run_id)
    LEFT JOIN seen AS n ON n.run_id = s.run_id AND n.step = s.step
    LEFT JOIN pieces AS p ON p.run_id = s.run_id AND p.step = s.step
    WHERE NOT coalesce(r.simulated, false)
)
SELECT
    run_id,
    coalesce(bool_or(traced), false) AS traced,
    coalesce(list(step ORDER BY step) FILTER (NOT missing AND NOT cut AND NOT warmup), []) AS steps,
    CASE
        WHEN count(traced) = 0 THEN 'no_stage_times'
        WHEN bool_and(missing) THEN 'stages_missing'
        WHEN bool_and(missing OR cut) THEN 'step_unfinished'
        WHEN bool_and(missing OR cut OR warmup) THEN 'warmup_only'
    END AS reason
FROM judged
GROUP BY run_id
