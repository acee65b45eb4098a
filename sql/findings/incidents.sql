-- Findings of one configuration joined over its runs: what is wrong, since when, how often, why, what it costs a day.
-- A regression, a drift, a slow stage or a rank of a slow host is left out where another incident explains it in
-- each of its runs.
-- Hosts and links that bandwidth tests show to be slow stand beside them: they belong to no run.
-- @scope fleet
-- @grain incident
-- @column incident VARCHAR | 8 hex digits of configuration, kind, subject and first run: the same every night.
-- @column kind VARCHAR | The most severe kind of its findings; recurring before straggler before suspect, and of regressed and drifted that of the latest run, regressed where it is both.
-- @column severity VARCHAR | critical, warning or notice.
-- @column level INTEGER | Place of the severity, to sort by: 1 critical, 2 warning, 3 notice.
-- @column subject VARCHAR | What it is about.
-- @column since TIMESTAMP | Date of its first run.
-- @column last_seen TIMESTAMP | Date of its latest run, or since where a run began before what went wrong in it.
-- @column runs BIGINT runs | Runs of the configuration from its first one to the latest one of the lake; see runs_unit.
-- @column slow_runs BIGINT runs | Those of them that have the finding.
-- @column cause VARCHAR | Likely cause, as seen in the latest run.
-- @column evidence VARCHAR | What was seen in the latest run.
-- @column brief VARCHAR | evidence in a few words, as in findings.
-- @column cost_gpu_hours_per_day DOUBLE GPU hours | What it costs a day if the job runs all day: median over its runs of lost_ratio, times 24 h on every rank. See cost_bound.
-- @column latest_run VARCHAR | Its latest run.
-- @column cost_basis VARCHAR | replay where the cost of some of its runs is by replay, and these count alone; else bound, as in findings.
-- @column cost_bound VARCHAR | at_most or at_least, as in findings; NULL where its runs differ in that, too.
-- @column open BOOLEAN | One of the latest 3 runs that could have it has it, of a rank or host one of the latest 20 of the configuration, or one that began less than 36 hours before the latest; or the latest bandwidth tests, while they go on with it. Of regressed, drifted and slow_stage also until 3 runs in a row are better, for 90 days.
-- @column runs_unit VARCHAR | What runs and slow_runs count: run, or test, the latest one of a pair of hosts for a collective and number of ranks per host.
-- @column run_ids VARCHAR[] | Runs that have it, or whose bandwidth tests show it, the latest last.
WITH known AS (
    SELECT
        f.*,
        p.run_date,
        p.world_size,
        p.later AS later_runs,
        p.ranked_later,
        p.latest_date,
        list_position(['recurring', 'straggler', 'suspect'], f.kind) AS grade
    FROM _found AS f
    JOIN _series_places AS p USING (run_id)
),
-- A run of the incident by its worst finding.
worst AS (
    SELECT *
    FROM known
    QUALIFY row_number() OVER (
        PARTITION BY incident, run_id ORDER BY level, grade, kind = 'drifted',
        lost_ratio DESC NULLS LAST, slowdown DESC NULLS LAST, kind, subject
    ) = 1
),
-- Where some of its runs were replayed, the bounds of the others say less.
costed AS (
    SELECT * REPLACE (
        CASE WHEN cost_basis = 'replay' OR NOT bool_or(cost_basis = 'replay') OVER (PARTITION BY incident)
            THEN lost_ratio
        END AS lost_ratio
    )
    FROM worst
),
joined AS (
    SELECT
        incident,
        any_value(config) AS config,
        any_value(family) AS family,
        arg_min(kind, (level, coalesce(grade, 0), -place)) AS kind,
        min_by(severity, level) AS severity,
        min(level) AS level,
        CASE WHEN any_value(family) = 'slow_rank' AND min(rank) = max(rank)
                AND max_by(host, place) IS NOT NULL
            THEN format('rank {} on {}', min(rank), any_value(series))
            WHEN any_value(family) = 'incomplete' THEN any_value(subject)
            ELSE any_value(series)
        END AS subject,
        min(since) AS since,
        max(later_runs) + 1 AS runs,
        min(later) AS later,
        min(ranked_later) AS ranked_later,
        any_value(latest_date) - max(run_date) AS gone,
        greatest(max(run_date), min(since)) AS last_seen,
        count(*) AS slow_runs,
        max_by(cause, place) AS cause,
        max_by(evidence, place) AS evidence,
        arg_max_null(brief, place) AS brief,
        max_by(advice, place) AS advice,
        max_by(run_id, place) AS latest_run,
        list(run_id ORDER BY place) AS run_ids,
        coalesce(max(cost_basis) FILTER (lost_ratio IS NOT NULL), 'bound') AS cost_basis,
        list(DISTINCT coalesce(cost_bound, '')) FILTER (lost_ratio IS NOT NULL) AS bounds,
        CASE WHEN len(bounds) = 1 THEN nullif(bounds[1], '') END AS cost_bound,
        median(lost_ratio * world_size * 24) AS cost_gpu_hours_per_day
    FROM costed
    GROUP BY incident
)
SELECT
    j.incident,
    j.config,
    j.kind,
    j.severity,
    j.level,
    j.subject,
    j.since,
    j.last_seen,
    j.runs,
    j.slow_runs,
    j.cause,
    j.evidence,
    j.cost_gpu_hours_per_day,
    j.advice,
    j.latest_run,
    CASE WHEN j.cost_gpu_hours_per_day IS NOT NULL THEN j.cost_basis END AS cost_basis,
    CASE WHEN j.cost_gpu_hours_per_day IS NOT NULL THEN j.cost_bound END AS cost_bound,
    j.later < 3 AND (j.family NOT IN ('slow_rank', 'slow_node') OR j.ranked_later < baseline_runs())
        OR j.gone <= over_after() OR l.incident IS NOT NULL AS open,
    'run' AS runs_unit,
    j.run_ids,
    j.brief
FROM joined AS j
LEFT JOIN _lasting_changes AS l USING (incident)
ANTI JOIN _explained AS e USING (incident)
UNION ALL BY NAME
SELECT *, 'test' AS runs_unit FROM _link_incidents
