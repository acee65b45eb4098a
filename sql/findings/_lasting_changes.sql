-- Regressions, drifts and slow stages that go on although no later run has them: slow runs make a slow baseline.
-- They end when 3 runs in a row are no worse than the baseline of the first one allowed, or after 90 days.
-- @scope fleet
-- @grain incident
WITH changes AS (
    SELECT
        incident,
        config,
        family,
        series,
        min(since) AS since,
        max(place) AS last_place,
        min_by(run_id, place) AS first_run
    FROM _found
    WHERE family IN ('regressed', 'slow_stage') AND incident IS NOT NULL
    GROUP BY incident, config, family, series
),
later AS (
    SELECT c.incident, c.since, p.run_id, p.run_date, p.place, c.family, c.series, c.first_run
    FROM changes AS c
    JOIN _series_places AS p ON p.config = c.config AND p.place > c.last_place
),
judged AS (
    SELECT
        l.incident, l.since, l.run_date, l.place,
        b.worse_sign * b.value > coalesce(
            b.worse_sign * f.baseline_median + f.allowed_ratio * f.baseline_median,
            b.worse_sign * f.baseline_worst
        ) AS worse
    FROM later AS l
    JOIN _baselines AS f ON f.run_id = l.first_run AND f.metric = l.series
    JOIN _baselines AS b ON b.run_id = l.run_id AND b.metric = l.series
    WHERE l.family = 'regressed'
    UNION ALL
    SELECT l.incident, l.since, l.run_date, l.place, b.micro_batch_ms - f.baseline_ms > f.allowed_ms
    FROM later AS l
    JOIN _slow_stages AS f ON f.run_id = l.first_run AND concat('stage ', f.stage) = l.series
    JOIN stage_balance AS b ON b.run_id = l.run_id AND b.stage = f.stage
    WHERE l.family = 'slow_stage'
),
-- A run without the figure says nothing.
ends AS (
    SELECT *, lag(worse, 1, true) OVER runs OR lag(worse, 2, true) OVER runs OR worse AS lasts
    FROM judged
    WHERE worse IS NOT NULL
    WINDOW runs AS (PARTITION BY incident ORDER BY place)
)
SELECT incident
FROM ends
GROUP BY incident
HAVING max(run_date) - min(since) <= INTERVAL 90 DAYS AND bool_and(lasts)
