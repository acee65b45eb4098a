-- What would make a run faster, as far as the run itself tells.
-- @grain run_id, kind
-- @column kind VARCHAR | split: another split of the layers over the stages; micro_batches: more of them per step; exposed_communication: communication beside compute.
-- @column gain_ratio DOUBLE | Part of the step time that it would save: for split of the step as replayed or modelled, for micro_batches per sample, for exposed_communication at most.
-- @column change VARCHAR | What to change.
-- @column confidence VARCHAR | modelled: from times of stages or of some of their modules by the schedule; replay: from the replay of the run; theory: from the schedule alone; bound: at most.
-- @column evidence VARCHAR | What it rests on, in one sentence.
WITH splits AS (
    SELECT
        run_id,
        any_value(gain_ratio) AS gain_ratio,
        any_value(covered_ratio) AS covered_ratio,
        any_value(current_imbalance_ratio) AS imbalance_ratio,
        string_agg(concat('stage ', stage, ': ', CASE first_layer
            WHEN last_layer THEN first_layer ELSE concat(first_layer, ' to ', last_layer)
        END), ', ' ORDER BY stage) AS change
    FROM stage_rebalance
    GROUP BY run_id
),
balances AS (
    -- Stages of a trace, taken as if the work could be split evenly: by the replay, else by the schedule, which takes
    -- too long where stages are uneven.
    SELECT
        b.run_id,
        any_value(p.micro_batches) AS m,
        count(*) AS stages,
        arg_min(b.stage, (-b.micro_batch_ms, b.stage)) AS stage,
        any_value(b.imbalance_ratio) AS imbalance_ratio,
        any_value(w.s_balance) IS NOT NULL AS replayed,
        1 - coalesce(ratio(1, any_value(w.s_balance)), ratio(
            pipeline_time(m, 1, ordered_mean(b.micro_batch_ms), ordered_sum(b.micro_batch_ms)),
            pipeline_time(m, 1, max(b.micro_batch_ms), ordered_sum(b.micro_batch_ms))
        )) AS gain_ratio
    FROM stage_balance AS b
    JOIN _pipelines AS p USING (run_id)
    LEFT JOIN whatif_runs AS w USING (run_id)
    -- A slow rank is to be mended, not given less work.
    ANTI JOIN _slow_ranks AS k ON k.run_id = b.run_id
    WHERE b.reason IS NULL AND p.micro_batches > 1 AND p.virtual_stages = 1
    GROUP BY b.run_id
),
schedules AS (
    SELECT
        p.run_id, p.stages, p.virtual_stages, p.micro_batches,
        2 * p.stages AS more,
        p.theory_bubble_ratio AS bubble_ratio,
        theory_bubble(p.stages, 2 * p.stages, p.virtual_stages) AS more_bubble_ratio
    FROM _pipelines AS p
    WHERE p.stages > 1 AND p.header_vpp IS NULL AND p.micro_batches < p.stages
),
exposed AS (
    -- To wait for a rank that comes late is no time of the call.
    SELECT
        b.run_id,
        ratio(
            ordered_sum(b.in_op_comm_ms - b.in_op_overlap_ms - coalesce(b.in_op_wait_ms, 0)),
            ordered_sum(b.window_ms)
        ) AS exposed_ratio
    FROM rank_bubbles AS b
    JOIN step_stats AS s USING (run_id, step)
    WHERE NOT s.warmup
    GROUP BY b.run_id
)
SELECT
    run_id, 'split' AS kind, gain_ratio, change,
    'modelled' AS confidence,
    format(
        'The listed modules of the busiest stage take {:.2f} times the mean of the stages and{} of'
            || ' the step; the best split would save {:.1f} % of the modelled step: confirm it with a run.',
        imbalance_ratio, coalesce(format(' {:.0f} %', 100 * covered_ratio), ' an unknown part'),
        100 * gain_ratio
    ) AS evidence
FROM splits
WHERE gain_ratio >= 0.05
UNION ALL
SELECT
    run_id, 'split', gain_ratio,
    format('Move work away from stage {}.', stage),
    CASE WHEN replayed THEN 'replay' ELSE 'modelled' END,
    format(
        'Stage {} takes {:.2f} times the mean of the {} stages; an even split would save {:.1f} % of'
            || ' the {}step with {} micro-batches.',
        stage, imbalance_ratio, stages, 100 * gain_ratio, CASE WHEN replayed THEN '' ELSE 'modelled ' END, m
    )
FROM balances
WHERE gain_ratio >= 0.05
UNION ALL
SELECT
    run_id, 'micro_batches',
    1 - ratio(1 - bubble_ratio, 1 - more_bubble_ratio),
    format('Use {} micro-batches per step in place of {}.', more, micro_batches),
    'theory',
    format(
        'With {} a step, {} stages idle {:.0f} % of it by the schedule alone; with {} it is {:.0f} %,'
            || ' and a sample takes {:.0f} % less time.',
        CASE micro_batches WHEN 1 THEN '1 micro-batch' ELSE micro_batches || ' micro-batches' END,
        stages, 100 * bubble_ratio, more, 100 * more_bubble_ratio,
        100 * (1 - ratio(1 - bubble_ratio, 1 - more_bubble_ratio))
    )
FROM schedules
UNION ALL
SELECT
    run_id, 'exposed_communication', exposed_ratio,
    'Overlap the collectives inside forward and backward with compute, or make their groups smaller.',
    'bound',
    format(
        'Synchronous collectives inside forward and backward take {:.1f} % of the pipeline window.',
        100 * exposed_ratio
    )
FROM exposed
WHERE exposed_ratio >= 0.15
