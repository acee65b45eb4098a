-- Each watched figure of a run beside the same figure of the runs of its baseline.
-- @scope fleet
-- @grain run_id, metric
-- @column baseline_values BIGINT | Runs of the baseline that have the figure.
-- @column baseline_median DOUBLE | Their median.
-- @column baseline_worst DOUBLE | The worst of them.
-- @column change_ratio DOUBLE | The figure over the median, less 1; NULL where the median is 0.
-- @column allowed_ratio DOUBLE | Change for the worse that is taken for noise; NULL where the median is 0.
-- @column regressed BOOLEAN | The figure is worse than the baseline allows; NULL where it cannot be compared.
-- @column confirmed BOOLEAN | Worse by more than twice of what is allowed, or regressed in the judged run before this one too.
-- @column excess_ratio DOUBLE | The change over what is allowed.
-- @column sentence VARCHAR | The change in words; NULL where it is no regression.
WITH kinds AS (
    SELECT DISTINCT config, metric, basis, worse_sign, least_change
    FROM _run_metrics JOIN _fleet_runs USING (run_id)
    WHERE value IS NOT NULL
),
-- By number of judged runs before: each of them has a row, so that rows can be counted.
spread AS (
    SELECT
        config, metric, basis,
        judged_before + 1 AS judged_before,
        count(value) OVER baseline AS baseline_values,
        quantile_cont(value, 0.5) OVER baseline AS middle,
        worse_sign * max(worse_sign * value) OVER baseline AS worst,
        noise_bound(middle, mad(value) OVER baseline, worst, least_change) AS bound
    FROM (
        SELECT k.*, r.judged_before, m.value
        FROM _fleet_runs AS r
        JOIN kinds AS k USING (config)
        LEFT JOIN _run_metrics AS m
            ON m.run_id = r.run_id AND m.metric = k.metric AND m.basis IS NOT DISTINCT FROM k.basis
        WHERE r.judged AND r.judged_before IS NOT NULL
    )
    WINDOW baseline AS (
        PARTITION BY config, metric, basis ORDER BY judged_before
        ROWS BETWEEN baseline_runs() - 1 PRECEDING AND CURRENT ROW
    )
),
beside AS (
    SELECT
        m.*,
        f.config,
        f.run_date,
        f.judged,
        coalesce(s.baseline_values, 0) AS baseline_values,
        CASE
            WHEN f.run_id IS NULL THEN 'duplicate'
            WHEN m.value IS NULL THEN m.value_reason
            WHEN f.run_date IS NULL THEN 'run_undated'
            WHEN f.config IS NULL THEN 'config_unknown'
            WHEN coalesce(s.baseline_values, 0) < 3 THEN 'few_runs'
        END AS reason,
        CASE WHEN reason IS NULL THEN s.middle END AS baseline_median,
        CASE WHEN reason IS NULL THEN s.worst END AS baseline_worst,
        m.worse_sign * (m.value - baseline_median) > s.bound AS regressed,
        m.worse_sign * (m.value - baseline_median) > 2 * s.bound AS at_once,
        ratio(m.value, baseline_median) - 1 AS change_ratio,
        ratio(s.bound, baseline_median) AS allowed_ratio,
        -- Texts are dear, and few figures are worse.
        CASE WHEN regressed THEN percent_digits(change_ratio, allowed_ratio) END AS digits
    FROM _run_metrics AS m
    LEFT JOIN _fleet_runs AS f USING (run_id)
    LEFT JOIN spread AS s
        ON s.config = f.config AND s.metric = m.metric AND s.basis IS NOT DISTINCT FROM m.basis
        AND s.judged_before = f.judged_before
)
SELECT
    run_id, metric, worse_sign, value,
    baseline_values,
    baseline_median,
    baseline_worst,
    change_ratio,
    allowed_ratio,
    regressed,
    regressed AND (
        at_once
        -- Of runs without a date or with copies none is before another, and none is regressed.
        OR coalesce(
            last_value(CASE WHEN judged AND value IS NOT NULL THEN coalesce(regressed, false) END IGNORE NULLS) OVER (
                PARTITION BY config, metric ORDER BY run_date, run_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            false
        )
    ) AS confirmed,
    reason,
    coalesce(abs(change_ratio) / allowed_ratio, 'inf') AS excess_ratio,
    CASE
        WHEN NOT coalesce(regressed, false) THEN NULL
        WHEN baseline_median = 0 THEN format(
            '{} {:.6g} is over {:.6g}, the most of {} earlier runs',
            metric, value, baseline_worst, baseline_values
        )
        ELSE format(
            '{} {:.6g} is {} {} the median {:.6g} of {} earlier runs; allowed {}',
            metric, value, percent(change_ratio, digits),
            CASE worse_sign WHEN 1 THEN 'over' ELSE 'under' END,
            baseline_median, baseline_values,
            percent(allowed_ratio, digits)
        )
    END AS sentence
FROM beside
