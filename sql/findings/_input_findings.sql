-- Findings about the input: contradictions, rejected lines.
-- @scope fleet
-- @grain run_id, kind, subject
-- @column kind VARCHAR | Kind of finding, as in findings.
-- Lost steps and lines are missing data, doubled lines a fault; other contradictions only say with what care to read the figures.
SELECT
    run_id, 'contradiction' AS kind,
    CASE what WHEN 'clocks' THEN 'notice' ELSE 'warning' END AS severity,
    CASE WHEN what IN ('steps', 'lost') THEN 'incomplete' WHEN what = 'doubled' THEN 'faults' END
        AS gate,
    CASE what WHEN 'clocks' THEN 'clocks' ELSE split_part(sentence, ':', 1) END AS subject,
    concat(
        CASE what WHEN 'clocks' THEN 'clocks: ' ELSE '' END,
        array_to_string(list(sentence ORDER BY rank, sentence)[:3], '; '),
        CASE WHEN count(*) > 3 THEN format('; and {} more', count(*) - 3) ELSE '' END,
        '.'
    ) AS evidence,
    'input' AS cause,
    CASE what
        WHEN 'steps' THEN 'See why the trace lacks whole steps: a lost block, or a tracer that began later.'
        WHEN 'sizes' THEN 'Give sizes that fit with --set, or see who named these.'
        WHEN 'changed' THEN 'Cut the file where the second job begins, and let each start of a job write a file of its own.'
        WHEN 'lost' THEN 'Ingest a copy that has these lines, or see where the tracer or the disk lost them.'
        WHEN 'doubled' THEN 'Ingest a copy that has each line once, or see who wrote them twice.'
        WHEN 'stages' THEN 'Give the layout of the job with --set, or see who wrote these stages.'
        ELSE 'Name the hosts of the ranks: --hosts or --run-pattern.'
    END AS advice
FROM (SELECT run_id, kind AS what, rank, sentence FROM _contradictions)
GROUP BY run_id, what, subject
UNION ALL BY NAME
SELECT
    run_id, 'rejects' AS kind, 'warning' AS severity, 'rejects' AS gate, 'lines' AS subject,
    format(
        'Lines rejected: {} ({:.2f} % of its record lines; {}), the first at {}:{}: {}',
        rejected, 100 * rejected_ratio, reasons, path, line, text
    ) AS evidence,
    'input' AS cause,
    'Read them: FROM rejects. A new spelling needs a newer tracelake; torn lines need another copy.'
        AS advice
FROM _rejected_lines
