-- Lines of a run that were rejected: how many, why, and where the first is.
-- @grain run_id
-- @column rejected BIGINT lines | Lines rejected.
-- @column rejected_ratio DOUBLE | Rejected over record lines and rejected.
-- @column reasons VARCHAR | Their reasons, by name.
WITH counts AS (
    SELECT
        run_id,
        try_cast(sum(rejected) AS BIGINT) AS rejected,
        ratio(sum(rejected), sum(row_lines) + sum(rejected)) AS rejected_ratio
    FROM sources
    GROUP BY run_id
    HAVING sum(rejected) > 0
),
listed AS (
    SELECT
        run_id,
        string_agg(DISTINCT reason, ', ' ORDER BY reason) AS reasons,
        arg_min(source_id, (source_id, line)) AS source_id,
        arg_min(line, (source_id, line)) AS line,
        left(arg_min(text, (source_id, line)), 120) AS text
    FROM rejects
    GROUP BY run_id
)
SELECT
    c.run_id,
    c.rejected,
    c.rejected_ratio,
    l.reasons,
    concat_ws('/', s.path, s.member) AS path,
    l.line,
    l.text
FROM counts AS c
LEFT JOIN listed AS l USING (run_id)
LEFT JOIN sources AS s ON s.run_id = c.run_id AND s.source_id = l.source_id
