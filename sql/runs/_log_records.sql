-- What the progress records of a log say about each step.
-- A record with the batches of its epoch is printed for the batch of index I, which is step I + 1 of the
-- epoch; any other is of the step that it names. A record over several batches gives none of them a
-- time, unless it says that its time is a mean of them. Where no record of the log prints a time,
-- samples per second give that of the latest step of each, or else, where they print tokens per
-- second, the dates of two records give the mean between them.
-- A job that began again in its log prints steps once more, of which the later record counts. Other ranks
-- print a step once more too, but at once, or with earlier dates, and never with other sizes.
-- @grain run_id, step
-- @column step_ns DOUBLE ns | Median over copies of the record's time.
-- @column loss DOUBLE | Median over copies of the record's loss.
-- @column basis VARCHAR | What step_ns is, as in step_stats.
-- @column record INTEGER | Last step of the record that has the time.
-- @column not_finite_ratio DOUBLE | Part of the record's steps whose loss was NaN or infinite; NULL where it says nothing of it.
-- @column restarts BIGINT | How often the job had begun again in its log before the records.
-- @column restarted BOOLEAN | A step of the first record after it began again.
-- @column untimed_reason VARCHAR | Why the step has no time, if it has none.
WITH records AS (
    SELECT
        t.run_id, t.source_id, t.line, t.copy,
        coalesce((coalesce(t.epoch, 1)::BIGINT - 1) * t.steps_per_epoch + t.step + 1, t.step) AS last_step,
        coalesce(t.batches_covered, 1) AS batches,
        t.step_time_ns,
        t.loss,
        CASE
            -- Where loss scaling skips all steps, there is no loss to print.
            WHEN NOT isfinite(t.loss) AND coalesce(t.skipped_steps, 0) < batches THEN 1
            -- Megatron-LM leaves out a loss that is NaN, and skips all steps in vain at the least scale, ...
            WHEN t.loss IS NULL AND CASE
                WHEN t.skipped_steps >= batches THEN t.loss_scale <= 1 AND lag(t.loss_scale) OVER file <= 1
                WHEN t.grad_norm IS NULL AND t.nan_steps = 0
                    THEN max(t.loss) OVER same_step IS NULL AND max(t.loss) OVER run IS NOT NULL
                ELSE t.skipped_steps < batches AND NOT isfinite(t.grad_norm)
            END THEN 1
            -- ... and the Trainer of Hugging Face prints 0, which is also a loss of its own.
            WHEN t.loss = 0 AND NOT isfinite(t.grad_norm)
                AND NOT bool_or(t.loss = 0 AND isfinite(t.grad_norm)) OVER run THEN 1
            WHEN isfinite(t.loss) OR t.nan_steps > 0 THEN least(1, coalesce(t.nan_steps, 0) / batches)
        END AS not_finite_ratio,
        t.time_basis,
        bool_or(t.step_time_ns IS NOT NULL) OVER run AS printed,
        CASE WHEN NOT printed THEN t.samples_per_s END AS samples_per_s,
        coalesce(t.global_batch_size, r.global_batch_size) AS samples,
        CASE WHEN t.tokens_per_s > 0 AND NOT printed AND lag(t.step) OVER file = t.step - t.batches_covered
            THEN epoch_us(t.logged_at) - epoch_us(lag(t.logged_at) OVER file)
        END AS between_us,
        between_us * t.tokens_per_s / batches AS tokens,
        coalesce(
            t.step <= lag(t.step) OVER file AND t.line > lag(t.line) OVER file
            AND coalesce(t.epoch, 1) <= lag(coalesce(t.epoch, 1)) OVER file
            AND (
                (f.line > lag(t.line) OVER file AND f.line <= t.line)
                -- No job starts faster, nor has it a record before the time of a step has passed.
                OR epoch_us(t.logged_at) - epoch_us(max(t.logged_at) OVER earlier)
                    >= greatest(10000000, t.step_time_ns // 1000)
            ),
            false
        ) AS restarted
    FROM train_steps AS t
    JOIN runs AS r USING (run_id)
    LEFT JOIN faults AS f ON f.run_id = t.run_id AND f.source_id = t.source_id AND f.name = 'sizes_changed'
    WHERE t.step IS NOT NULL
    WINDOW run AS (PARTITION BY t.run_id), same_step AS (PARTITION BY t.run_id, t.step),
    file AS (PARTITION BY t.run_id, t.source_id ORDER BY t.line, t.copy),
    earlier AS (file ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
timed AS (
    SELECT
        *,
        -- Where a job stopped and went on with the next step, the time is that of many more tokens.
        CASE WHEN tokens <= 5 * quantile_cont(tokens, 0.5) OVER (PARTITION BY run_id) THEN between_us END AS dated_us,
        CASE
            WHEN step_time_ns IS NOT NULL THEN step_time_ns::DOUBLE
            WHEN samples_per_s >= 1e-6 THEN 1e9 * samples / samples_per_s
            WHEN dated_us > 0 THEN 1e3 * dated_us / batches
        END AS time_ns,
        CASE
            WHEN step_time_ns IS NOT NULL
                THEN coalesce(time_basis, CASE batches WHEN 1 THEN 'own' ELSE 'mean' END)
            WHEN samples_per_s >= 1e-6 THEN 'samples_per_s'
            WHEN dated_us > 0 THEN 'dates'
        END AS basis,
        count(CASE WHEN restarted THEN 1 END) OVER (
            PARTITION BY run_id, source_id ORDER BY line, copy
        ) AS restarts
    FROM records
),
covered AS (
    SELECT
        *,
        unnest(range(last_step - batches + 1, last_step + 1))::INTEGER AS covered_step,
        -- What the time of the record is the time of.
        CASE
            WHEN basis = 'samples_per_s' THEN covered_step = last_step
            ELSE coalesce(time_basis <> 'includes_first', batches = 1)
        END AS told
    FROM timed
    -- Beyond these numbers it is no record of steps.
    WHERE last_step BETWEEN CASE WHEN coalesce(time_basis, 'own') = 'own' THEN 0 ELSE 1 END AND 2147483646
        AND batches BETWEEN 1 AND 1000
)
SELECT
    run_id,
    covered_step AS step,
    quantile_cont(time_ns, 0.5) FILTER (told) AS step_ns,
    quantile_cont(loss, 0.5) FILTER ((time_basis IS NOT NULL OR batches = 1) AND isfinite(loss)) AS loss,
    max(not_finite_ratio) AS not_finite_ratio,
    min(basis) FILTER (told AND time_ns IS NOT NULL) AS basis,
    max(last_step) FILTER (told AND time_ns IS NOT NULL)::INTEGER AS record,
    CASE
        WHEN bool_and(coalesce(time_basis = 'includes_first', false)) THEN 'includes_first_step'
        WHEN bool_or(told AND samples_per_s IS NOT NULL AND samples IS NULL) THEN 'batch_size_unknown'
        WHEN bool_and(time_basis IS NOT NULL OR batches = 1) THEN 'no_step_time'
        ELSE 'several_steps'
    END AS untimed_reason,
    restarts,
    bool_or(restarted) AS restarted
FROM covered
GROUP BY run_id, covered_step, restarts
QUALIFY restarts = max(restarts) OVER (PARTITION BY run_id, covered_step)
