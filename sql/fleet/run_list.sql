-- The runs as lists show them: what people call each, how large it is, and how bad its findings are.
-- @scope fleet
-- @grain run_id
-- @column label VARCHAR | runs.label; where an earlier version ingested the run, its name.
-- @column hash VARCHAR | The 8 hex digits that end run_id; run_id where it has none, or where they also name another run. Names the run in every command.
-- @column stepless BOOLEAN | It has no steps: a plan of work, a test of links, a log without steps.
-- @column size VARCHAR | Ranks and how they are divided, such as `32 GPU tp2 pp4`; sizes of 1 are left out. NULL where the input says nothing of it.
-- @column step_p50_ms DOUBLE ms | Median time of a step.
-- @column step_p50_ms_change_ratio DOUBLE | step_p50_ms over its baseline, less 1.
-- @column severity VARCHAR | Of its worst finding, or incident that its tests show: critical, warning or notice; NULL without one.
-- @column problems VARCHAR[] | Kinds of its findings that are more than a notice, and of incidents that its bandwidth tests show, the most severe first.
-- @column problem VARCHAR | The worst of them: its kind and subject.
-- @column urgency BIGINT | Place when runs are sorted by severity, then date, the latest first, then cost; from 1.
-- @column tested_incidents VARCHAR[] | Open incidents of hosts and links that its bandwidth tests show to be slow, the most severe first.
-- @column copy_of VARCHAR | Of a run all of whose files are copies the hash of the run that it repeats; NULL of all others. Copies are in no history and no incident, and have no findings of their own.
-- @column continued_by VARCHAR | Of an incomplete log whose job went on in the log of a later start the hash of that run; NULL of all others. Such a run has no finding incomplete, unless its log says what broke it.
-- @column running_until TIMESTAMP | Of an incomplete log whose last date was less than an hour ago when the warehouse was built, and that says nothing of an end: its job may run until then. It has no finding incomplete before a build after that time; NULL of all others.
WITH found AS (
    SELECT run_id, kind, severity, level, subject, cost_gpu_hours, lost_ratio, slowdown
    FROM findings
    UNION ALL BY NAME
    SELECT t.run_id, i.incident, i.kind, i.severity, i.level, i.subject, i.open
    FROM _link_incidents AS i
    JOIN _slow_tests AS t USING (incident)
),
kinds AS (
    SELECT run_id, list(kind ORDER BY level, kind) AS problems
    FROM (
        SELECT run_id, kind, min(level) AS level
        FROM found
        WHERE severity <> 'notice'
        GROUP BY run_id, kind
    )
    GROUP BY run_id
),
worst AS (
    SELECT
        run_id,
        min_by(severity, level) AS severity,
        min(level) AS level,
        max(cost_gpu_hours) AS cost,
        arg_min(
            concat(replace(kind, '_', ' '), CASE WHEN subject <> 'run' THEN ': ' || subject END),
            (
                level, -coalesce(lost_ratio, -1), kind = 'recurring', kind,
                -coalesce(slowdown, 0), subject
            )
        ) FILTER (severity <> 'notice') AS problem,
        list(incident ORDER BY level, incident) FILTER (open) AS tested
    FROM found
    GROUP BY run_id
)
SELECT
    r.run_id,
    n.label,
    n.hash,
    r.format,
    s.steps IS NULL AS stepless,
    r.run_date,
    nullif(concat_ws(
        ' ',
        r.world_size || ' GPU',
        CASE WHEN r.tp > 1 THEN 'tp' || r.tp END,
        CASE WHEN r.pp > 1 THEN 'pp' || r.pp END,
        CASE WHEN r.dp > 1 THEN 'dp' || r.dp END,
        CASE WHEN r.ep > 1 THEN 'ep' || r.ep END,
        CASE WHEN r.cp > 1 THEN 'cp' || r.cp END,
        CASE WHEN r.vpp > 1 THEN 'vpp' || r.vpp END
    ), '') AS size,
    s.step_p50_ms,
    h.step_p50_ms_change_ratio,
    w.severity,
    coalesce(k.problems, []) AS problems,
    w.problem,
    row_number() OVER (
        ORDER BY w.level NULLS LAST, r.run_date DESC NULLS LAST, w.cost DESC NULLS LAST, r.run_id
    ) AS urgency,
    coalesce(w.tested, []) AS tested_incidents,
    o.hash AS copy_of,
    x.hash AS continued_by,
    u.running_until
FROM runs AS r
JOIN run_summary AS s USING (run_id)
JOIN _run_names AS n USING (run_id)
LEFT JOIN _run_copies AS c USING (run_id)
LEFT JOIN _run_names AS o ON o.run_id = c.copy_of
LEFT JOIN _continued_runs AS t USING (run_id)
LEFT JOIN _run_names AS x ON x.run_id = t.continued_by
LEFT JOIN _running_logs AS u ON u.run_id = r.run_id
LEFT JOIN run_history AS h ON h.run_id = r.run_id
LEFT JOIN kinds AS k ON k.run_id = r.run_id
LEFT JOIN worst AS w ON w.run_id = r.run_id
