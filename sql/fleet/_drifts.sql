-- Each watched figure over the latest 5 runs of a configuration beside the best 10 in a row before.
-- Only judged runs with a date count, those of one date by run_id. The 10 runs lie within 90 days
-- before the run and end before the latest 5.
-- @scope fleet
-- @grain run_id, metric
-- @column latest_median DOUBLE | Median of the figure over the run and the 4 before it.
-- @column best_median DOUBLE | The best median of 10 runs in a row, of equal ones the first.
-- @column best_worst DOUBLE | The worst figure of these 10.
-- @column best_from TIMESTAMP | Date of the first of the 10.
-- @column best_until TIMESTAMP | Date of the last of the 10.
-- @column change_ratio DOUBLE | latest_median over best_median, less 1; NULL where that is 0.
-- @column allowed_ratio DOUBLE | Change for the worse that is taken for noise; NULL where best_median is 0.
-- @column drifted BOOLEAN | latest_median is worse than that, and the run worse than best_worst: what was mended does not drift. NULL where it cannot be compared.
WITH listed AS (
    SELECT
        m.*,
        f.config,
        f.run_date,
        row_number() OVER (
            PARTITION BY f.config, m.metric, m.basis ORDER BY f.run_date, m.run_id
        ) AS place
    FROM _run_metrics AS m
    JOIN _fleet_runs AS f USING (run_id)
    WHERE f.config IS NOT NULL AND f.judged AND f.run_date >= TIMESTAMP '0001-01-01' AND m.value IS NOT NULL
),
rolling AS (
    SELECT
        *,
        quantile_cont(value, 0.5) OVER (series ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)
            AS latest_median,
        quantile_cont(value, 0.5) OVER ten AS middle,
        mad(value) OVER ten AS spread,
        worse_sign * max(worse_sign * value) OVER ten AS worst,
        max(run_date) OVER ten AS until,
        min(place) OVER (
            PARTITION BY config, metric, basis ORDER BY run_date
            RANGE BETWEEN INTERVAL 90 DAYS PRECEDING AND CURRENT ROW
        ) AS first_place
    FROM listed
    WINDOW series AS (PARTITION BY config, metric, basis ORDER BY run_date, run_id),
    ten AS (
        PARTITION BY config, metric, basis ORDER BY run_date, run_id
        ROWS BETWEEN CURRENT ROW AND 9 FOLLOWING
    )
),
held AS (
    SELECT
        *,
        min({
            'badness': worse_sign * middle,
            'place': place,
            'middle': middle,
            'worst': worst,
            'bound': noise_bound(middle, spread, worst, least_change),
            'since': run_date,
            'until': until
        }) OVER (
            PARTITION BY config, metric, basis ORDER BY run_date, run_id
            ROWS BETWEEN (place - first_place) PRECEDING AND 14 PRECEDING
        ) AS best
    FROM rolling
)
SELECT
    m.run_id,
    m.metric,
    CASE WHEN h.best IS NOT NULL THEN h.latest_median END AS latest_median,
    h.best.middle AS best_median,
    h.best.worst AS best_worst,
    h.best.since AS best_from,
    h.best.until AS best_until,
    ratio(h.latest_median, h.best.middle) - 1 AS change_ratio,
    ratio(h.best.bound, h.best.middle) AS allowed_ratio,
    h.worse_sign * (h.latest_median - h.best.middle) > h.best.bound
        AND h.worse_sign * (h.value - h.best.worst) > 0 AS drifted,
    CASE
        WHEN f.run_id IS NULL THEN 'duplicate'
        WHEN m.value IS NULL THEN m.value_reason
        WHEN f.run_date IS NULL THEN 'run_undated'
        WHEN f.config IS NULL THEN 'config_unknown'
        WHEN NOT coalesce(f.judged, false) THEN 'run_incomplete'
        WHEN h.best IS NULL THEN 'few_runs'
    END AS reason
FROM _run_metrics AS m
LEFT JOIN _fleet_runs AS f USING (run_id)
LEFT JOIN held AS h USING (run_id, metric)
