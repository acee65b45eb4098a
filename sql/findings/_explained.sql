-- Series of findings that another one explains in each of its runs: what changed is the effect, who is slow is the cause.
-- Slower steps, where they are confirmed, explain a regression or drift of another figure; a slow stage, or steps that
-- became slower within the run, explain any of these; a slow rank, host or link, or slow data loading, explains these
-- and a slow stage; a slow host explains its slow ranks. What the runs before had as well explains no change: the cause
-- loses more than twice what it lost in the median of the runs with which the effect's first run is compared.
-- @scope fleet
-- @grain run_id, incident
-- @column incident VARCHAR | The series that is explained.
-- @column culprit VARCHAR | The series that explains it in this run.
WITH effects AS (
    SELECT DISTINCT run_id, incident, family, host
    FROM _found
    WHERE incident IS NOT NULL AND family IN ('regressed', 'slow_stage', 'slow_rank')
),
culprits AS (
    SELECT
        run_id, incident, family,
        any_value(host) AS host,
        max(lost_ratio) AS lost_ratio
    FROM _found
    WHERE incident IS NOT NULL
        AND (
            family IN ('slow_rank', 'slow_node', 'slow_link', 'data_loading', 'slow_stage', 'slowed')
            OR (family = 'regressed' AND series = 'step_p50_ms' AND gate IS NOT NULL)
        )
    GROUP BY run_id, incident, family
),
together AS (
    SELECT e.run_id, e.incident, e.family AS effect, c.incident AS culprit, c.family, c.lost_ratio
    FROM effects AS e
    JOIN culprits AS c
        ON c.run_id = e.run_id AND c.incident <> e.incident AND CASE e.family
            WHEN 'regressed' THEN true
            WHEN 'slow_stage' THEN c.family NOT IN ('slow_stage', 'slowed', 'regressed')
            ELSE c.family = 'slow_node' AND c.host = e.host
        END
),
firsts AS (
    SELECT f.incident, f.run_id, d.best_from, d.best_until
    FROM _found AS f
    LEFT JOIN _drifts AS d ON f.kind = 'drifted' AND d.run_id = f.run_id AND d.metric = f.subject
    WHERE f.incident IN (SELECT incident FROM together)
    QUALIFY row_number() OVER (PARTITION BY f.incident ORDER BY f.place, f.kind) = 1
),
compared AS (
    SELECT f.incident, p.run_id
    FROM firsts AS f
    JOIN _fleet_runs AS r ON r.run_id = f.run_id
    JOIN _fleet_runs AS p
        ON p.config = r.config AND p.judged
        AND CASE WHEN f.best_from IS NULL
            THEN p.judged_before BETWEEN r.judged_before - baseline_runs() AND r.judged_before - 1
            ELSE p.run_date BETWEEN f.best_from AND f.best_until
        END
),
usual AS (
    SELECT
        t.incident, t.culprit,
        median(CASE WHEN c.run_id IS NULL THEN 0 ELSE coalesce(c.lost_ratio, 1) END) AS lost_ratio
    FROM (SELECT DISTINCT incident, culprit FROM together) AS t
    JOIN compared AS b USING (incident)
    LEFT JOIN culprits AS c ON c.run_id = b.run_id AND c.incident = t.culprit
    GROUP BY t.incident, t.culprit
),
pairs AS (
    SELECT
        e.run_id, e.incident,
        arg_min(t.culprit, (
            t.family = 'regressed', t.family IN ('slow_stage', 'slowed'), t.family <> 'slow_node', -coalesce(t.lost_ratio, 0), t.culprit
        )) FILTER (
            t.effect = 'slow_rank' OR coalesce(u.lost_ratio, 0) = 0 OR coalesce(t.lost_ratio, 1) > 2 * u.lost_ratio
        ) AS culprit
    FROM effects AS e
    LEFT JOIN together AS t USING (run_id, incident)
    LEFT JOIN usual AS u USING (incident, culprit)
    GROUP BY e.run_id, e.incident
),
explained AS (
    SELECT run_id, incident, culprit
    FROM pairs
    WINDOW whole AS (PARTITION BY incident)
    QUALIFY count(culprit) OVER whole = count(*) OVER whole
),
-- While a regression lasts, a drift is no other one: the best runs of these days are slow ones of it.
lasting AS (
    SELECT f.run_id, f.incident, min_by(coalesce(e.culprit, l.incident), l.last_place) AS culprit
    FROM _found AS f
    JOIN (
        SELECT incident, config, series, max(place) AS last_place
        FROM _found
        WHERE family = 'regressed' AND incident IN (FROM _lasting_changes)
        GROUP BY incident, config, series
    ) AS l
        ON f.family = 'regressed' AND l.config = f.config AND l.series = f.series AND l.last_place < f.place
    LEFT JOIN (SELECT incident, min(culprit) AS culprit FROM explained GROUP BY incident) AS e
        ON e.incident = l.incident
    WHERE f.incident NOT IN (SELECT incident FROM _found WHERE kind = 'regressed' AND incident IS NOT NULL)
    GROUP BY f.run_id, f.incident
)
SELECT run_id, incident, culprit FROM lasting
UNION ALL
-- What explains slower steps explains the other figures too.
SELECT e.run_id, e.incident, coalesce(c.culprit, e.culprit) AS culprit
FROM explained AS e
ANTI JOIN lasting AS l USING (run_id, incident)
LEFT JOIN explained AS c ON c.run_id = e.run_id AND c.incident = e.culprit
