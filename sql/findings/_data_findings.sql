-- Findings about data that is lost or damaged: files that cannot be read, parts of the lake, and runs that models fail on.
-- @scope fleet
-- @grain run_id?, kind, subject
-- @column kind VARCHAR | Kind of finding, as in findings.
SELECT
    f.run_id, 'unreadable' AS kind, 'critical' AS severity, 'faults' AS gate,
    concat_ws('/', s.path, s.member) AS subject,
    format('{}: {}.', subject, string_agg(
        concat(
            replace(f.name, '_', ' '),
            CASE WHEN f.count > 1 THEN format(', {} times', f.count) ELSE '' END,
            coalesce(format(', first in line {}', f.line), ''),
            ': ' || nullif(left(f.text, 120), '')
        ), '; ' ORDER BY f.name
    )) AS evidence,
    'input' AS cause,
    CASE WHEN bool_and(f.severity = 'data_loss')
        THEN 'Generate or copy the file again, and repeat the ingest; what was read is in the lake.'
        ELSE 'See what it means and what helps: tracelake show ' || n.hash
    END AS advice
FROM faults AS f
JOIN sources AS s USING (run_id, source_id)
JOIN _run_names AS n USING (run_id)
WHERE f.severity IN ('data_loss', 'error')
GROUP BY f.run_id, n.hash, s.path, s.member
UNION ALL BY NAME
SELECT
    run_id, 'model_failed' AS kind, 'critical' AS severity, 'faults' AS gate, input AS subject,
    format(
        '{}{}: no figure of the run could be computed: {} failed on its data ({}).',
        input, CASE WHEN more_inputs > 0 THEN format(' and {} more', more_inputs) ELSE '' END,
        failed_model, message
    ) AS evidence,
    'input' AS cause,
    'Look in the file for numbers that cannot be true, mend it and ingest it again, or delete the'
        || ' run: tracelake drop ' || run_id AS advice
FROM model_failures
UNION ALL BY NAME
SELECT
    NULL AS run_id, 'unreadable' AS kind, 'critical' AS severity, 'faults' AS gate,
    concat_ws('/', path, member) AS subject,
    CASE reason
        WHEN 'unreadable' THEN format('{}: the file cannot be read.', subject)
        ELSE format('{}: tracelake''s reader of the format failed, so its run is left out.', subject)
    END AS evidence,
    'input' AS cause,
    CASE reason
        WHEN 'unreadable'
            THEN 'Make it readable for the user that runs tracelake, or copy it again if it is damaged, and ingest it.'
        ELSE 'This is a fault of the reader: report it with what ingest prints.'
    END AS advice
FROM skipped
WHERE reason IN ('unreadable', 'parser_failed')
UNION ALL BY NAME
SELECT
    NULL AS run_id, 'data_lost' AS kind, 'critical' AS severity, 'faults' AS gate,
    part AS subject,
    format('{}: the part file is {}; {}.', part, any_value(damage), CASE
        WHEN count(run_id) = 0 THEN 'the skipped files are not listed'
        WHEN count(run_id) = 1 THEN concat('run ', any_value(run_id), ' is left out')
        ELSE format('{} runs are left out', count(run_id))
    END) AS evidence,
    'input' AS cause,
    concat('Give the input of the run to tracelake run again, put the file or its manifest back from a backup, or ', CASE
        WHEN any_value(damage) = 'without a manifest' THEN 'remove the file with tracelake gc.'
        ELSE 'drop the run with --forget.'
    END) AS advice
FROM lost
GROUP BY part
