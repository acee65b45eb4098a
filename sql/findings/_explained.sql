-- Series of findings that another one explains in each of its runs: what changed is the effect, who is slow is the cause.
-- A slow stage, or steps that became slower within the run, explain a regression or drift; a slow rank, host or
-- link, or slow data loading, explains these and a slow stage.
-- @internal
-- @scope fleet
-- @grain run_id, incident
-- @column incident VARCHAR | The series that is explained.
-- @column culprit VARCHAR | The series that explains it in this run.
WITH effects AS (
    SELECT DISTINCT run_id, incident, family
    FROM _found
    WHERE incident IS NOT NULL AND family IN ('regressed', 'slow_stage')
),
culprits AS (
    SELECT
        run_id, incident, family,
        max(lost_ratio) AS lost_ratio
    FROM _found
    WHERE incident IS NOT NULL
        AND family IN ('slow_rank', 'slow_node', 'slow_link', 'data_loading', 'slow_stage', 'slowed')
    GROUP BY run_id, incident, family
),
pairs AS (
    SELECT
        e.run_id, e.incident,
        arg_min(c.incident, (c.family IN ('slow_stage', 'slowed'), -coalesce(c.lost_ratio, 0), c.incident))
            AS culprit
    FROM effects AS e
    LEFT JOIN culprits AS c
        ON c.run_id = e.run_id AND (e.family = 'regressed' OR c.family NOT IN ('slow_stage', 'slowed'))
    GROUP BY e.run_id, e.incident
)
SELECT run_id, incident, culprit
FROM pairs
WINDOW whole AS (PARTITION BY incident)
QUALIFY count(culprit) OVER whole = count(*) OVER whole
