-- Which files could not be read, or only in part?
-- @topic input
-- @param top UBIGINT = 20 | Rows at most.
-- Each row is a file with the reason: one that no format takes, one that cannot be opened, or one that
-- lost data while it was read. `next_step` says what to do about it. Lost data come first, and last
-- the files that are likely no logs.

SELECT * EXCLUDE level
FROM (
    SELECT
        concat_ws('/', path, member) AS file,
        NULL AS run_id,
        reason,
        CASE reason
            WHEN 'empty' THEN 'Wait until it is written, or copy it again.'
            WHEN 'no_times' THEN 'Read the output of its job instead.'
            WHEN 'other_trace' THEN 'Write a trace with torch.profiler, and read that of each rank.'
            WHEN 'utf_16' THEN 'Convert it: iconv -f UTF-16 -t UTF-8.'
            WHEN 'quoted' THEN 'If it is a log, name it as an input, outside of an archive.'
            WHEN 'no_records' THEN 'See why the job wrote no record, or drop --input-format.'
            WHEN 'ambiguous' THEN 'Choose a format with --input-format.'
            WHEN 'expands_too_far' THEN 'Raise --max-expand, if its size is as expected.'
            WHEN 'nested_archive' THEN 'Extract it.'
            WHEN 'not_a_file'
            THEN 'Name the folder that a link leads to as an input; copy what a pipe gives into a file.'
            WHEN 'dangling_link' THEN 'Put back the file that it leads to, or remove it.'
            WHEN 'lake' THEN 'Nothing: it is a lake, which no other lake reads.'
            WHEN 'hidden' THEN 'Rename it without the dot, if it is a log.'
            ELSE 'If it is a log, see tracelake formats.'
        END AS next_step,
        NULL AS level
    FROM skipped
    WHERE reason NOT IN ('unreadable', 'parser_failed')  -- these are findings
    UNION ALL
    SELECT subject, run_id, kind, advice, level
    FROM findings
    WHERE kind IN ('unreadable', 'data_lost')
)
ORDER BY
    level NULLS LAST, reason IN ('no_format', 'no_times', 'other_trace', 'quoted', 'lake', 'hidden'), reason, file, run_id
LIMIT $top
