-- Bubble that stages of these times have when nothing else delays them.
-- T = m max t_s + (sum of t_s - max t_s) / v, and stage s is busy for m t_s of it: with equal
-- stages the theory of an interleaved schedule, with v = 1 that of 1F1B.
-- @internal
-- @grain run_id, step, stage
-- @column ranks BIGINT ranks | Ranks of the stage that say its time.
-- @column bubble_ratio DOUBLE | 1 - m t_s / T.
-- @column bubble_over_ideal_ratio DOUBLE | T / (m t_s) - 1.
-- @column covered_ratio DOUBLE | Largest m t_s over the step's time: what of the step the listed modules explain.
WITH steps AS (
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
)
SELECT
    j.run_id,
    j.step,
    j.stage,
    j.ranks,
    CASE WHEN j.missing IS NULL THEN 1 - j.busy_ns / j.total_ns END AS bubble_ratio,
    CASE WHEN j.missing IS NULL THEN ratio(j.total_ns, j.busy_ns) - 1 END
        AS bubble_over_ideal_ratio,
    CASE WHEN j.missing IS NULL AND j.forward_only
        THEN ratio(ns_to_ms(j.busiest_ns), s.step_ms)
    END AS covered_ratio,
    coalesce(j.missing, CASE WHEN j.forward_only THEN 'forward_modules_only' END) AS reason
FROM judged AS j
LEFT JOIN step_stats AS s ON s.run_id = j.run_id AND s.step = j.step
