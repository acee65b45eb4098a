-- Findings about a run beside earlier runs of its configuration: regressed, drifted, slow_stage.
-- @scope fleet
-- @grain run_id, kind, subject
-- @column kind VARCHAR | Kind of finding, as in findings.
-- @column lost_ratio DOUBLE | Part of the steps' time that was lost, at most.
-- @column evidence VARCHAR | What was seen, in one sentence that begins with the subject.
WITH regressions AS (
    SELECT
        *,
        unnest(regressions) AS sentence,
        split_part(sentence, ' ', 1) AS figure,
        list_contains(confirmed_regressions, sentence) AS figure_confirmed,
        max(CASE WHEN verdict <> 'not_comparable' THEN run_date END) OVER (PARTITION BY config) AS until
    FROM run_history
    QUALIFY verdict = 'regressed'
),
-- What a regression is seen beside is the latest run before it that has none.
good AS (
    SELECT f.config, f.run_date, n.hash
    FROM _fleet_runs AS f
    JOIN run_history AS h USING (run_id)
    JOIN _run_names AS n USING (run_id)
    WHERE f.judged AND h.verdict <> 'regressed'
),
drifts AS (
    SELECT *, unnest(drifts) AS sentence, rtrim(split_part(sentence, ' ', 1), ':') AS figure
    FROM run_history WHERE drift = 'drifted'
),
stage_hosts AS (
    SELECT run_id, stage, min(host) AS host FROM _stage_ranks GROUP BY run_id, stage
    HAVING count(host) = count(*) AND min(host) = max(host)
),
operations AS (
    -- Which pass of a slow rank fills the moments that the others wait for it says nothing.
    SELECT
        run_id, stage,
        CASE kind WHEN 'overlap' THEN 'compute' ELSE kind END AS what,
        CASE what WHEN 'compute' THEN what ELSE op END AS op,
        ordered_sum(change_ms) AS change_ms,
        ordered_sum(share_ratio) AS share_ratio
    FROM step_changes
    WHERE op <> 'rest'
    GROUP BY ALL
),
causes AS (
    -- The operation that explains most of a change in step time, if it explains a good part.
    SELECT run_id, op, what AS kind, stage, change_ms
    FROM operations
    WHERE change_ms > 0 AND share_ratio >= 0.3
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY change_ms DESC, op, stage) = 1
)
SELECT
    r.run_id,
    'regressed' AS kind,
    CASE WHEN r.figure_confirmed THEN 'critical' ELSE 'notice' END AS severity,
    CASE WHEN r.figure_confirmed THEN 'regression' END AS gate,
    r.figure AS subject, c.stage, c.op,
    concat(
        r.sentence,
        '; ' || format('{} explains {:.1f} ms of the change', concat_ws(' of stage ', c.op, c.stage), c.change_ms),
        CASE WHEN r.figure_confirmed THEN '' ELSE '; the run before does not confirm it' END,
        '.'
    ) AS evidence,
    CASE WHEN r.figure = 'step_p50_ms' THEN 1 - ratio(r.step_p50_ms_baseline, r.step_p50_ms) END AS lost_ratio,
    CASE
        WHEN c.kind = 'data' THEN 'data'
        WHEN c.kind IN ('comm', 'p2p') THEN 'link'
        WHEN c.kind = 'compute' THEN 'compute'
        ELSE 'unclear'
    END AS cause,
    CASE WHEN r.figure_confirmed OR r.run_date < r.until
        THEN concat_ws(' ', 'See what changed: tracelake diff', g.hash, n.hash)
        ELSE 'Wait for the next run of the configuration: it is an alarm when that one is slow too.'
    END AS advice
FROM regressions AS r
JOIN _run_names AS n USING (run_id)
JOIN _fleet_runs AS f USING (run_id)
ASOF LEFT JOIN good AS g ON g.config = f.config AND g.run_date < f.run_date
LEFT JOIN causes AS c ON c.run_id = r.run_id AND r.figure = 'step_p50_ms'
UNION ALL BY NAME
SELECT
    d.run_id, 'drifted' AS kind, 'critical' AS severity, 'drift' AS gate,
    d.figure AS subject,
    d.sentence || '.' AS evidence,
    CASE WHEN d.figure = 'step_p50_ms' THEN 1 - ratio(b.best_median, b.latest_median) END AS lost_ratio,
    'unclear' AS cause,
    concat_ws(' ', 'Compare with the last of them: tracelake diff', g.hash, n.hash) AS advice
FROM drifts AS d
JOIN _run_names AS n USING (run_id)
JOIN _fleet_runs AS f USING (run_id)
LEFT JOIN _drifts AS b ON b.run_id = d.run_id AND b.metric = d.figure
ASOF LEFT JOIN good AS g ON g.config = f.config AND g.run_date <= b.best_until
UNION ALL BY NAME
SELECT
    s.run_id, 'slow_stage' AS kind, 'warning' AS severity,
    concat('stage ', s.stage) AS subject,
    s.stage, h.host,
    format(
        'stage {}{} took {:.2f} ms per micro-batch, {:.1f} % more than in earlier runs'
            || ' ({:.2f} ms); the other stages changed by {:+.1f} %.',
        s.stage, coalesce(' on host ' || h.host, ''), s.micro_batch_ms,
        100 * s.change_ratio, s.baseline_ms, 100 * s.others_change_ratio
    ) AS evidence,
    ratio(s.micro_batch_ms - s.baseline_ms, s.micro_batch_ms) AS lost_ratio,
    CASE WHEN h.host IS NULL THEN 'stage' ELSE 'node' END AS cause,
    CASE WHEN h.host IS NULL
        THEN 'All ranks of the stage are slow: see whether they share a host, a switch or a change of code.'
        ELSE format('The stage runs on {} alone: move it to another host to tell the host from its work.', h.host)
    END AS advice
FROM _slow_stages AS s
-- One slow rank is no slow stage.
ANTI JOIN _slow_ranks AS k USING (run_id, stage)
LEFT JOIN stage_hosts AS h USING (run_id, stage)
