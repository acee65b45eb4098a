-- When a log without files of ranks was written: from its first date to its last.
-- @grain run_id
-- @column ends TIMESTAMP | The last date in it; NULL if it has none.
SELECT
    r.run_id,
    greatest(max(t.logged_at), try_cast(any_value(r.attributes['last_datetime']) AS TIMESTAMP)) AS ends
FROM runs AS r
JOIN train_steps AS t USING (run_id)
WHERE r.ranks_seen IS NULL
GROUP BY r.run_id
