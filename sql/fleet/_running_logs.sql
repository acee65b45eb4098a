-- Logs whose jobs may still run, and until when.
-- Their steps have not ended, nothing says what ended them, and their last date was less than an hour ago when the
-- warehouse was built, by the clock of the machine that built it.
-- @scope fleet
-- @grain run_id
-- @column running_until TIMESTAMP | When the hour is over.
SELECT r.run_id, coalesce(s.ends, r.run_date) + INTERVAL 1 HOUR AS running_until
FROM runs AS r
LEFT JOIN _log_spans AS s USING (run_id)
WHERE r.ranks_seen IS NULL AND NOT r.complete AND r.attributes['ended_by'] IS NULL
    -- What has other rows than it declares will not get them.
    AND r.run_id NOT IN (SELECT run_id FROM faults WHERE severity = 'incomplete')
    -- Not after the next hour: that clock, or the log's, is wrong or of another zone.
    AND running_until BETWEEN current_localtimestamp() AND current_localtimestamp() + INTERVAL 2 HOUR
