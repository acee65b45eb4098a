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
bases AS (
    SELECT
        run_id, step, stage, 'measured' AS basis, ranks, bubble_ratio, bubble_min_ratio,
        bubble_max_ratio, bubble_over_ideal_ratio, NULL::DOUBLE AS covered_ratio, reason
    FROM _stage_bubbles_measured
    UNION ALL
    SELECT
        run_id, step, stage, 'modelled', ranks, bubble_ratio, NULL, NULL,
        bubble_over_ideal_ratio, covered_ratio, reason
    FROM _stage_bubbles_modelled
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
