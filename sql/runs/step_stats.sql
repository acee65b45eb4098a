-- Time of every step, which stage was busiest in it, and whether it is warm-up or an outlier.
-- @report Steps
-- @grain run_id, step
-- @column step_ms DOUBLE ms | Rank traces: from the first operation to the end of the last, over ranks. Logs: time of the progress record, median over copies.
-- @column loss DOUBLE | Loss, median over copies; NULL where the record sums several steps.
-- @column busiest_stage INTEGER | Stage with the most time per micro-batch.
-- @column imbalance_ratio DOUBLE | Largest time per micro-batch of a stage over the mean of the stages; 1 is even.
-- @column warmup BOOLEAN | Step 1 of a log, and the steps of the first record after a restart; leading steps of a trace of 3 or more that take over twice the median of those after them.
-- @column outlier BOOLEAN | Off the median by over 5 x 1.4826 x MAD, the MAD at least 1 % of the median, warm-up left out.
-- @column stages_reason VARCHAR | Why there is no busiest stage.
-- @column time_basis VARCHAR | What step_ms is: traced; own, the record of this step; mean, of a record over several steps; samples_per_s, the batch over the printed samples per second; dates, the time between two records over their steps. NULL without a time.
-- @column restarts BIGINT | How often the job had begun again in its log before it trained the step, or trained it once more; NULL without a record.
WITH followed AS (
    -- Without the steps that have no time: a NULL makes such a window thirty times as slow.
    SELECT
        run_id, step,
        step_ns > 2 * quantile_cont(step_ns, 0.5) OVER (
            PARTITION BY run_id ORDER BY step ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS slower
    FROM _step_times
    WHERE traced AND step_ns IS NOT NULL
),
following AS (
    SELECT s.*, f.slower, count(*) OVER (PARTITION BY s.run_id) AS steps
    FROM _step_times AS s
    LEFT JOIN followed AS f USING (run_id, step)
),
warm AS (
    SELECT
        *,
        CASE
            WHEN traced THEN steps >= 3 AND bool_and(coalesce(slower, false)) OVER (
                PARTITION BY run_id ORDER BY step
            )
            ELSE step = 1 OR restarted
        END AS warmup
    FROM following
),
runs_median AS (
    SELECT
        run_id,
        quantile_cont(step_ns, 0.5) AS median_ns,
        mad(step_ns) AS mad_ns
    FROM warm
    WHERE NOT warmup
    GROUP BY run_id
),
stages AS (
    SELECT
        run_id,
        step,
        count(*) AS stages,
        arg_min(stage, (-micro_batch_ns, stage)) AS busiest_stage,
        max(micro_batch_ns) AS busiest_ns,
        ratio(max(micro_batch_ns), ordered_mean(micro_batch_ns)) AS imbalance_ratio
    FROM _stage_times
    GROUP BY run_id, step
),
judged AS (
    SELECT
        s.*,
        CASE
            WHEN p.stages IS NULL THEN 'topology_unknown'
            WHEN s.stages < p.stages THEN 'stages_missing'
            WHEN s.busiest_ns = 0 THEN 'below_clock_resolution'
            WHEN s.imbalance_ratio IS NULL THEN 'micro_batches_unknown'
        END AS stages_reason
    FROM stages AS s
    JOIN _pipelines AS p USING (run_id)
)
SELECT
    w.run_id,
    w.step,
    ns_to_ms(w.step_ns) AS step_ms,
    w.loss,
    CASE WHEN j.stages_reason IS NULL THEN j.busiest_stage END AS busiest_stage,
    CASE WHEN j.stages_reason IS NULL THEN j.imbalance_ratio END AS imbalance_ratio,
    w.warmup,
    NOT w.warmup AND abs(w.step_ns - m.median_ns) > 5 * robust_scale(m.mad_ns, m.median_ns)
        AS outlier,
    w.reason,
    CASE WHEN j.run_id IS NULL THEN 'no_stage_times' ELSE j.stages_reason END AS stages_reason,
    w.time_basis,
    w.restarts
FROM warm AS w
LEFT JOIN runs_median AS m USING (run_id)
LEFT JOIN judged AS j ON j.run_id = w.run_id AND j.step = w.step
