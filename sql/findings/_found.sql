-- All findings, with the series that each belongs to; what is wrong with a copy is of the run that it repeats.
-- A series has the same configuration, subject and family of kinds. It ends where 3 runs in a row, for 36 hours or more, do
-- not have the finding and could: of steps they have figures, of a rank or host it was compared.
-- @scope fleet
-- @grain run_id?, kind, subject
-- @column family VARCHAR | Kinds that speak of the same thing: slow_rank for straggler, suspect and recurring, regressed for a drift too, else the kind.
-- @column series VARCHAR | What the finding is about over several runs.
-- @column incident VARCHAR | 8 hex digits: the series; NULL where the run has no place among others.
-- @column level INTEGER | Place of the severity: 1 critical, 2 warning, 3 notice.
-- @column brief VARCHAR | As in findings.
-- @column lost_ratio DOUBLE | Part of the steps' time that was lost, as cost_basis says.
-- @column cost_basis VARCHAR | replay or bound; NULL without lost_ratio.
-- @column cost_bound VARCHAR | at_most or at_least, as in findings.
-- @column place BIGINT | Place of the run among those of its configuration.
-- @column later BIGINT runs | Runs after it that could have had the finding.
-- @column since TIMESTAMP | Date of the first run of the series.
WITH listed AS (
    FROM _rank_findings
    UNION ALL BY NAME
    FROM _change_findings
    UNION ALL BY NAME
    FROM _work_findings
    UNION ALL BY NAME
    FROM _loading_findings
    UNION ALL BY NAME
    FROM _incomplete_findings
    UNION ALL BY NAME
    FROM _step_findings
    UNION ALL BY NAME
    FROM _loss_findings
    UNION ALL BY NAME
    FROM _input_findings
    UNION ALL BY NAME
    FROM _data_findings
),
-- Runs in which a rank, device or host was compared, where one of them has a finding about it.
compared AS (
    SELECT
        *,
        count(*) OVER (
            PARTITION BY config, family, series ORDER BY run_date NULLS FIRST, run_id
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS later
    FROM (
        SELECT
            run_id, config, run_date, 'slow_rank' AS family,
            concat_ws(' ', 'host ' || host, 'device ' || device, 'rank ' || rank) AS series
        FROM _subject_runs
        UNION
        SELECT run_id, config, run_date, 'slow_node', 'host ' || host FROM _subject_runs
    )
    WHERE series IN (SELECT series FROM _rank_findings)
),
placed AS (
    SELECT
        l.* EXCLUDE (series, since, lost_ratio, cost_basis, cost_bound),
        severity_level(l.severity) AS level,
        CASE WHEN l.lost_ratio IS NOT NULL THEN greatest(0, least(1, l.lost_ratio)) END AS lost_ratio,
        CASE WHEN l.lost_ratio IS NOT NULL THEN coalesce(l.cost_basis, 'bound') END AS cost_basis,
        CASE
            WHEN l.cost_basis IS NOT NULL THEN l.cost_bound
            WHEN l.lost_ratio IS NOT NULL THEN 'at_most'
        END AS cost_bound,
        l.since AS told_since,
        coalesce(l.series, l.subject) AS series,
        CASE
            WHEN l.kind IN ('straggler', 'suspect', 'recurring') THEN 'slow_rank'
            WHEN l.kind = 'drifted' THEN 'regressed'
            ELSE l.kind
        END AS family,
        p.config, p.place, p.run_date, p.before_date,
        CASE WHEN l.kind IN ('regressed', 'drifted', 'slow_stage', 'slowed', 'data_loading', 'slow_link')
            THEN p.measured_later ELSE coalesce(s.later, p.later)
        END AS later
    FROM listed AS l
    ANTI JOIN _run_copies AS c USING (run_id)
    LEFT JOIN _series_places AS p USING (run_id)
    LEFT JOIN compared AS s ON s.run_id = l.run_id AND s.series = l.series
        AND s.family = CASE l.kind WHEN 'slow_node' THEN l.kind ELSE 'slow_rank' END
),
steps AS (
    SELECT
        *,
        lag(later) OVER before - later > 3 AND before_date - lag(run_date) OVER before > over_after() AS starts
    FROM placed
    WINDOW before AS (PARTITION BY config, family, series ORDER BY place)
),
numbered AS (
    SELECT
        *,
        count(CASE WHEN starts THEN 1 END) OVER (
            PARTITION BY config, family, series ORDER BY place
        ) AS number
    FROM steps
),
dated AS (
    SELECT
        *,
        min(run_date) OVER whole AS first_date,
        first_value(run_id) OVER (
            PARTITION BY config, family, series, number ORDER BY place
        ) AS first_run
    FROM numbered
    WINDOW whole AS (PARTITION BY config, family, series, number)
)
SELECT
    * EXCLUDE (told_since, starts, number, first_date, first_run, run_date, before_date),
    CASE WHEN place IS NOT NULL THEN coalesce(told_since, first_date) END AS since,
    CASE WHEN place IS NOT NULL
        THEN left(md5(concat_ws('|', config, family, series, first_run)), 8)
    END AS incident
FROM dated
