-- Whether the latest runs of a configuration are worse than its best ones, and since when.
-- @scope fleet
-- @grain run_id
-- @column drift VARCHAR | drifted, ok or not_comparable.
-- @column drifts VARCHAR[] | What is worse, a sentence per figure, the one furthest beyond what is allowed first.
-- @column drifted_since TIMESTAMP | Date of the first run of the series of drifted runs that this one belongs to.
WITH worded AS (
    SELECT
        d.*,
        abs(change_ratio) / allowed_ratio AS excess_ratio,
        -- Texts are dear, and few runs drift.
        CASE WHEN drifted THEN percent_digits(change_ratio, allowed_ratio) END AS digits,
        CASE WHEN drifted THEN concat(
            best_from::DATE,
            CASE WHEN best_until::DATE > best_from::DATE THEN ' to ' || best_until::DATE END
        ) END AS days,
        CASE
            WHEN NOT coalesce(drifted, false) THEN NULL
            WHEN best_median = 0 THEN format(
                '{}: the median of the latest 5 runs, {:.6g}, is over {:.6g}, the most of the'
                    || ' best 10 runs in a row ({})',
                metric, latest_median, best_worst, days
            )
            ELSE format(
                '{}: the median of the latest 5 runs, {:.6g}, is {} {} {:.6g}, the best median'
                    || ' of 10 runs in a row ({}); allowed {}',
                metric,
                latest_median,
                percent(change_ratio, digits),
                CASE m.worse_sign WHEN 1 THEN 'over' ELSE 'under' END,
                best_median,
                days,
                percent(allowed_ratio, digits)
            )
        END AS sentence
    FROM _drifts AS d
    JOIN _run_metrics AS m USING (run_id, metric)
),
judged AS (
    SELECT
        run_id,
        bool_or(drifted) AS drifted,
        coalesce(list(sentence ORDER BY excess_ratio DESC NULLS FIRST, metric) FILTER (drifted), [])
            AS drifts,
        arg_min(reason, (reason_order(reason), metric)) AS reason
    FROM worded
    GROUP BY run_id
),
-- A judged run that did not drift ends a series, also where it is compared with nothing.
series AS (
    SELECT
        j.*,
        f.config,
        f.run_date,
        count(CASE WHEN f.judged AND NOT coalesce(j.drifted, false) THEN 1 END) OVER (
            PARTITION BY f.config ORDER BY f.run_date, j.run_id
        ) AS number
    FROM judged AS j
    LEFT JOIN _fleet_runs AS f USING (run_id)
)
SELECT
    run_id,
    CASE drifted WHEN true THEN 'drifted' WHEN false THEN 'ok' ELSE 'not_comparable' END AS drift,
    drifts,
    CASE WHEN drifted THEN
        min(run_date) FILTER (drifted) OVER (PARTITION BY config, number)
    END AS drifted_since,
    CASE WHEN drifted IS NULL THEN reason END AS reason
FROM series
