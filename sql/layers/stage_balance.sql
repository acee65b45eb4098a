-- How evenly the pipeline's stages are loaded: time per micro-batch of each.
-- @report Balance of stages
-- @grain run_id, stage
-- @column micro_batch_ms DOUBLE ms | Time per micro-batch, median over the run's steps without warm-up: forward and backward of the slowest rank in traces, forward of the listed modules in logs.
-- @column share_ratio DOUBLE | The stage's part of the sum over stages.
-- @column imbalance_ratio DOUBLE | Largest time per micro-batch of a stage over the mean of the stages; the same for every stage of a run.
-- @column busiest_steps BIGINT steps | Steps in which this stage was the busiest.
-- @column steps BIGINT steps | Steps counted.
WITH medians AS (
    SELECT
        t.run_id,
        t.stage,
        quantile_cont(t.micro_batch_ns, 0.5) FILTER (NOT s.warmup) AS micro_batch_ns,
        count(*) FILTER (NOT s.warmup AND s.busiest_stage = t.stage) AS busiest_steps,
        count(*) FILTER (NOT s.warmup) AS steps,
        bool_or(t.forward_only) AS forward_only
    FROM _stage_times AS t
    JOIN step_stats AS s USING (run_id, step)
    GROUP BY t.run_id, t.stage
),
sums AS (
    SELECT
        run_id,
        count(*) AS stages_seen,
        count(micro_batch_ns) AS stages_timed,
        ordered_sum(micro_batch_ns) AS sum_ns,
        max(micro_batch_ns) AS max_ns
    FROM medians
    GROUP BY run_id
),
judged AS (
    SELECT
        *,
        CASE
            WHEN p.stages IS NULL THEN 'topology_unknown'
            WHEN s.stages_seen < p.stages THEN 'stages_missing'
            WHEN m.steps = 0 THEN 'warmup_only'
            WHEN m.micro_batch_ns IS NULL THEN 'micro_batches_unknown'
            -- Another stage was seen in warm-up alone.
            WHEN s.stages_timed < s.stages_seen THEN 'stages_missing'
            WHEN s.sum_ns = 0 THEN 'below_clock_resolution'
        END AS missing
    FROM medians AS m
    JOIN sums AS s USING (run_id)
    JOIN _pipelines AS p USING (run_id)
)
SELECT
    run_id,
    stage,
    ns_to_ms(micro_batch_ns) AS micro_batch_ms,
    CASE WHEN missing IS NULL THEN ratio(micro_batch_ns, sum_ns) END AS share_ratio,
    CASE WHEN missing IS NULL THEN ratio(max_ns * stages_seen, sum_ns) END AS imbalance_ratio,
    busiest_steps,
    steps,
    coalesce(missing, CASE WHEN forward_only THEN 'forward_modules_only' END) AS reason
FROM judged
