-- Bubble of every pipeline stage by what it rests on: measured times, times per layer, or theory.
-- @report Bubble by stage
-- @grain run_id, step, stage, basis
-- @column step INTEGER | Optimizer step, from 1; 0 for theory, which is about every step.
-- @column basis VARCHAR | measured: ranks' windows in traces; modelled: the time line of the stages' own times; theory: equal stages; theory_simulator: equal stages with the virtual stages of a plan's header, as the simulator that reads it computes.
-- @column ranks BIGINT ranks | Ranks behind the figure; NULL for theory.
-- @column bubble_ratio DOUBLE | Idle over window: mean over the stage's ranks if measured.
-- @column bubble_min_ratio DOUBLE | Smallest of a rank of the stage.
-- @column bubble_max_ratio DOUBLE | Largest of a rank of the stage.
-- @column bubble_over_ideal_ratio DOUBLE | Idle over busy.
-- @column theory_bubble_ratio DOUBLE | (p - 1) / (v m + p - 1).
-- @column theory_over_ideal_ratio DOUBLE | (p - 1) / (v m), Narayanan et al. 2021, section 2.2.
-- @column covered_ratio DOUBLE | Of stdout logs: the busiest stage's listed modules over the step's time. Small means that the modelled figure says little.
WITH stages AS (
    SELECT *, unnest(range(stages))::INTEGER AS stage FROM _pipelines
),
-- T = m max t_s + (sum of t_s - max t_s) / v, and stage s is busy for m t_s of it: with equal
-- stages the theory of an interleaved schedule, with v = 1 that of 1F1B.
steps AS (
    SELECT
        t.*,
        p.micro_batches,
        p.stages,
        count(*) OVER step AS stages_seen,
        p.micro_batches * max(t.micro_batch_ns) OVER step AS busiest_ns,
        pipeline_time(
            p.micro_batches,
            p.virtual_stages,
            max(t.micro_batch_ns) OVER step,
            list_sum(list(t.micro_batch_ns ORDER BY t.micro_batch_ns) OVER step)
        ) AS total_ns
    FROM _stage_times AS t
    JOIN _pipelines AS p USING (run_id)
    WINDOW step AS (PARTITION BY t.run_id, t.step)
),
judged AS (
    SELECT
        *,
        micro_batches * micro_batch_ns AS busy_ns,
        CASE
            WHEN stages IS NULL THEN 'topology_unknown'
            WHEN stages_seen < stages THEN 'stages_missing'
            WHEN micro_batches IS NULL THEN 'micro_batches_unknown'
            WHEN busiest_ns = 0 THEN 'below_clock_resolution'
        END AS missing
    FROM steps
),
bases AS (
    SELECT
        run_id, step, stage, 'measured' AS basis, count(bubble_ratio) AS ranks,
        ordered_mean(bubble_ratio) AS bubble_ratio,
        min(bubble_ratio) AS bubble_min_ratio,
        max(bubble_ratio) AS bubble_max_ratio,
        ordered_mean(bubble_over_ideal_ratio) AS bubble_over_ideal_ratio,
        NULL::DOUBLE AS covered_ratio,
        CASE WHEN count(bubble_ratio) = 0 THEN min(reason) END AS reason
    FROM rank_bubbles
    WHERE stage IS NOT NULL
    GROUP BY run_id, step, stage
    UNION ALL
    SELECT
        j.run_id, j.step, j.stage, 'modelled', j.ranks,
        CASE WHEN j.missing IS NULL THEN 1 - j.busy_ns / j.total_ns END,
        NULL, NULL,
        CASE WHEN j.missing IS NULL THEN ratio(j.total_ns, j.busy_ns) - 1 END,
        CASE WHEN j.missing IS NULL AND j.forward_only
            THEN ratio(ns_to_ms(j.busiest_ns), s.step_ms)
        END,
        coalesce(j.missing, CASE WHEN j.forward_only THEN 'forward_modules_only' END)
    FROM judged AS j
    LEFT JOIN step_stats AS s ON s.run_id = j.run_id AND s.step = j.step
    UNION ALL
    SELECT
        run_id, 0, stage, 'theory', NULL, theory_bubble_ratio, NULL, NULL, theory_over_ideal_ratio,
        NULL, CASE WHEN micro_batches IS NULL THEN 'micro_batches_unknown' END
    FROM stages
    UNION ALL
    SELECT
        run_id, 0, stage, 'theory_simulator', NULL,
        theory_bubble(stages, micro_batches, header_vpp), NULL, NULL,
        theory_over_ideal(stages, micro_batches, header_vpp),
        NULL, CASE WHEN micro_batches IS NULL THEN 'micro_batches_unknown' END
    FROM stages
    WHERE header_vpp IS NOT NULL
)
SELECT
    b.run_id,
    b.step,
    b.stage,
    b.basis,
    b.ranks,
    b.bubble_ratio,
    b.bubble_min_ratio,
    b.bubble_max_ratio,
    b.bubble_over_ideal_ratio,
    CASE b.basis WHEN 'theory_simulator' THEN b.bubble_ratio ELSE p.theory_bubble_ratio END
        AS theory_bubble_ratio,
    CASE b.basis
        WHEN 'theory_simulator' THEN b.bubble_over_ideal_ratio
        ELSE p.theory_over_ideal_ratio
    END AS theory_over_ideal_ratio,
    b.covered_ratio,
    b.reason
FROM bases AS b
JOIN _pipelines AS p USING (run_id)
