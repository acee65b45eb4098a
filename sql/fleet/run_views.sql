-- Two views of one job: the log that it printed, and the traces of its ranks.
-- They have the same label, and dates, where both have one, less than a day apart; or the traces began while the
-- log was written, within a minute before and two after it, and both know a world size. In both cases no size
-- may differ (world, tp, pp, dp), and only one log may fit a trace. A view is a row in each direction.
-- @report Logs and traces of one job
-- @scope fleet
-- @grain run_id, view_run_id
-- @column view_run_id VARCHAR | The other view.
-- @column view_format VARCHAR | Its format.
-- @column view_label VARCHAR | What people call it.
-- @column related_by VARCHAR | label or time.
WITH known AS (
    SELECT r.*
    FROM runs AS r
    SEMI JOIN _fleet_runs AS f USING (run_id)
),
fitting AS (
    SELECT
        t.run_id AS trace, l.run_id AS log,
        CASE
            WHEN t.label = l.label
                AND coalesce(abs(date_diff('second', l.run_date, t.run_date)) < 86400, true)
                THEN 'label'
            WHEN t.run_date BETWEEN l.run_date - INTERVAL 1 MINUTE AND s.ends + INTERVAL 2 MINUTE
                AND t.world_size = l.world_size THEN 'time'
        END AS related_by
    FROM known AS l
    JOIN _log_spans AS s USING (run_id)
    JOIN known AS t
        ON t.ranks_seen IS NOT NULL
        AND coalesce(t.world_size = l.world_size, true)
        AND coalesce(t.tp = l.tp, true)
        AND coalesce(t.pp = l.pp, true)
        AND coalesce(t.dp = l.dp, true)
    WHERE related_by IS NOT NULL
    -- A label says more than a time.
    QUALIFY related_by = min(related_by) OVER (PARTITION BY t.run_id)
        AND count(*) OVER (PARTITION BY t.run_id, related_by) = 1
),
views AS (
    SELECT unnest([trace, log]) AS run_id, unnest([log, trace]) AS view_run_id, related_by FROM fitting
)
SELECT v.run_id, v.view_run_id, o.format AS view_format, o.label AS view_label, v.related_by
FROM views AS v
JOIN runs AS o ON o.run_id = v.view_run_id
