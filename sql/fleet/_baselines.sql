-- Each watched figure of a run beside the same figure of the runs of its baseline.
-- @internal
-- @scope fleet
-- @grain run_id, metric
-- @column metric VARCHAR | Column of run_summary.
-- @column worse_sign INTEGER | 1 where more is worse, -1 where less is.
-- @column value DOUBLE | The run's figure.
-- @column baseline_values BIGINT | Runs of the baseline that have the figure.
-- @column baseline_median DOUBLE | Their median.
-- @column baseline_worst DOUBLE | The worst of them.
-- @column change_ratio DOUBLE | The figure over the median, less 1; NULL where the median is 0.
-- @column allowed_ratio DOUBLE | Change for the worse that is taken for noise; NULL where the median is 0.
-- @column regressed BOOLEAN | The figure is worse than the baseline allows; NULL where it cannot be compared.
WITH spread AS (
    SELECT
        b.run_id,
        m.metric,
        count(m.value) AS baseline_values,
        quantile_cont(m.value, 0.5) AS baseline_median,
        any_value(m.worse_sign) * max(m.worse_sign * m.value) AS baseline_worst,
        greatest(
            0.1 * quantile_cont(m.value, 0.5),
            3 * robust_scale(mad(m.value), quantile_cont(m.value, 0.5))
        ) AS margin
    FROM _baseline_runs AS b
    JOIN _run_metrics AS m ON m.run_id = b.earlier_run_id
    GROUP BY b.run_id, m.metric
),
beside AS (
    SELECT
        m.*,
        coalesce(s.baseline_values, 0) AS baseline_values,
        CASE
            WHEN f.run_id IS NULL THEN 'duplicate'
            WHEN m.value IS NULL THEN 'figure_missing'
            WHEN f.run_date IS NULL THEN 'run_undated'
            WHEN coalesce(s.baseline_values, 0) < 3 THEN 'few_runs'
        END AS reason,
        CASE WHEN reason IS NULL THEN s.baseline_median END AS baseline_median,
        CASE WHEN reason IS NULL THEN s.baseline_worst END AS baseline_worst,
        s.margin
    FROM _run_metrics AS m
    LEFT JOIN _fleet_runs AS f USING (run_id)
    LEFT JOIN spread AS s USING (run_id, metric)
)
SELECT
    run_id,
    metric,
    worse_sign,
    value,
    baseline_values,
    baseline_median,
    baseline_worst,
    ratio(value, baseline_median) - 1 AS change_ratio,
    ratio(CASE WHEN reason IS NULL THEN margin END, baseline_median) AS allowed_ratio,
    worse_sign * (value - CASE baseline_median WHEN 0 THEN baseline_worst ELSE baseline_median END)
        > CASE baseline_median WHEN 0 THEN 0 ELSE margin END AS regressed,
    reason
FROM beside
