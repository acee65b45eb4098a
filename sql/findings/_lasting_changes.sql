-- Regressions and drifts that go on although no later run has them: slow runs make a slow baseline.
-- Each run since is worse than the baseline of the first one allowed, for at most 90 days.
-- @internal
-- @scope fleet
-- @grain incident
-- @column incident VARCHAR | As in incidents.
WITH changes AS (
    SELECT
        incident,
        config,
        series AS metric,
        min(since) AS since,
        max(place) AS last_place,
        min_by(run_id, place) AS first_run
    FROM _found
    WHERE family = 'regressed' AND incident IS NOT NULL
    GROUP BY incident, config, series
)
SELECT c.incident
FROM changes AS c
JOIN _baselines AS first ON first.run_id = c.first_run AND first.metric = c.metric
JOIN _series_places AS p ON p.config = c.config AND p.place > c.last_place
JOIN _baselines AS later ON later.run_id = p.run_id AND later.metric = c.metric
GROUP BY c.incident
HAVING max(p.run_date) - min(c.since) <= INTERVAL 90 DAYS
    AND bool_and(
        later.worse_sign * (later.value - first.baseline_median)
            > first.allowed_ratio * first.baseline_median
    )
