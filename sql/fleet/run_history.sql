-- Whether a run is worse than the runs of its configuration before it, figure by figure.
-- Worse: over the median of the 20 latest complete runs by more than 10 % and three times their spread,
-- of a fraction also by more than a percentage point.
-- A log counts as complete however it ends: its steps have whole times.
-- @report Runs against their baseline
-- @scope fleet
-- @grain run_id
-- @column config VARCHAR | Configuration; NULL where no size of the job is known, so that runs with the same text may be of other jobs.
-- @column verdict VARCHAR | regressed: a watched figure is worse than its baseline allows; ok; not_comparable: no figure has a baseline.
-- @column regressions VARCHAR[] | What is worse, a sentence per figure, the one furthest beyond what is allowed first.
-- @column baseline_runs BIGINT runs | Runs of the baseline: the up to 20 latest complete ones of the configuration before this one.
-- @column step_p50_ms DOUBLE ms | Median time of a step; more is worse.
-- @column step_p50_ms_baseline DOUBLE ms | Its median over the baseline.
-- @column step_p50_ms_change_ratio DOUBLE | step_p50_ms over its baseline, less 1.
-- @column step_p50_ms_allowed_ratio DOUBLE | Change that is taken for noise: 10 %, or 3 x 1.4826 x MAD / median where that is more.
-- @column bubble_ratio DOUBLE | Measured pipeline bubble, idle over window; more is worse.
-- @column bubble_ratio_baseline DOUBLE | Its median over the baseline; NULL without a pipeline.
-- @column bubble_ratio_change_ratio DOUBLE | bubble_ratio over its baseline, less 1.
-- @column bubble_ratio_allowed_ratio DOUBLE | Change that is taken for noise: 10 %, or 3 x 1.4826 x MAD / median or a percentage point where that is more.
-- @column busbw_gbps DOUBLE GB/s | Median bus bandwidth of the kind of call with the most bytes, coarse ones left out; less is worse.
-- @column busbw_gbps_baseline DOUBLE GB/s | Its median over the runs of the baseline where it is of the same kind of call.
-- @column busbw_gbps_change_ratio DOUBLE | busbw_gbps over its baseline, less 1.
-- @column busbw_gbps_allowed_ratio DOUBLE | Change that is taken for noise: 10 %, or 3 x 1.4826 x MAD / median where that is more.
-- @column stragglers BIGINT ranks | Ranks with the verdict straggler; more is worse.
-- @column stragglers_baseline DOUBLE ranks | Their median number over the baseline; where it is 0, a run is worse than the most of any.
-- @column stragglers_change_ratio DOUBLE | stragglers over their baseline, less 1.
-- @column stragglers_allowed_ratio DOUBLE | Change that is taken for noise: 10 %, or 3 x 1.4826 x MAD / median where that is more.
-- @column not_compared VARCHAR[] | Figures without a verdict, each as `figure: reason`.
-- @column confirmed BOOLEAN | Some figure is worse by more than twice of what is allowed, or regressed in the complete run before this one too: what the gate asks. NULL where verdict is not_comparable.
-- @column confirmed_regressions VARCHAR[] | The sentences of `regressions` whose figure is confirmed.
-- @column drift VARCHAR | drifted: the median of a figure over the latest 5 complete runs is worse than its best median of 10 runs in a row allows, within 90 days before the run, and its own is worse than all of the 10; ok; not_comparable.
-- @column drift_reason VARCHAR | Why drift is not_comparable.
-- @column drifts VARCHAR[] | What has drifted, a sentence per figure, the one furthest beyond what is allowed first.
-- @column drifted_since TIMESTAMP | Date of the first run of the present series of drifted runs.
WITH judged AS (
    SELECT
        run_id,
        bool_or(regressed) AS regressed,
        bool_or(confirmed) AS confirmed,
        coalesce(list(sentence ORDER BY excess_ratio DESC, metric) FILTER (regressed), [])
            AS regressions,
        coalesce(list(sentence ORDER BY excess_ratio DESC, metric) FILTER (confirmed), [])
            AS confirmed_regressions,
        coalesce(list(concat(metric, ': ', reason) ORDER BY metric) FILTER (reason IS NOT NULL), [])
            AS not_compared,
        -- Of a figure that is there, where there is one: only it says what would help.
        arg_min(reason, (reason_order(reason), metric)) AS reason,
        map_from_entries(list((metric, baseline_median))) AS baseline,
        map_from_entries(list((metric, change_ratio))) AS change,
        map_from_entries(list((metric, allowed_ratio))) AS allowed
    FROM _baselines
    GROUP BY run_id
)
SELECT
    s.run_id,
    CASE WHEN f.run_id IS NULL THEN s.config ELSE f.config END AS config,
    s.run_date,
    CASE j.regressed
        WHEN true THEN 'regressed'
        WHEN false THEN 'ok'
        ELSE 'not_comparable'
    END AS verdict,
    j.regressions,
    CASE WHEN j.regressed IS NULL THEN j.reason END AS reason,
    least(coalesce(f.judged_before, 0), baseline_runs()) AS baseline_runs,
    s.step_p50_ms,
    j.baseline['step_p50_ms'] AS step_p50_ms_baseline,
    j.change['step_p50_ms'] AS step_p50_ms_change_ratio,
    j.allowed['step_p50_ms'] AS step_p50_ms_allowed_ratio,
    s.bubble_ratio,
    j.baseline['bubble_ratio'] AS bubble_ratio_baseline,
    j.change['bubble_ratio'] AS bubble_ratio_change_ratio,
    j.allowed['bubble_ratio'] AS bubble_ratio_allowed_ratio,
    s.busbw_gbps,
    j.baseline['busbw_gbps'] AS busbw_gbps_baseline,
    j.change['busbw_gbps'] AS busbw_gbps_change_ratio,
    j.allowed['busbw_gbps'] AS busbw_gbps_allowed_ratio,
    s.stragglers,
    j.baseline['stragglers'] AS stragglers_baseline,
    j.change['stragglers'] AS stragglers_change_ratio,
    j.allowed['stragglers'] AS stragglers_allowed_ratio,
    j.not_compared,
    j.confirmed,
    j.confirmed_regressions,
    d.drift,
    d.reason AS drift_reason,
    d.drifts,
    d.drifted_since
FROM run_summary AS s
JOIN judged AS j USING (run_id)
JOIN _run_drifts AS d USING (run_id)
LEFT JOIN _fleet_runs AS f USING (run_id)
