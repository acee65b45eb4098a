-- Runs without figures, because a model failed on their data.
-- The SELECT gives no row: the build adds them. Every other model has of such a run only what its
-- name, configuration and date give.
-- @grain run_id
-- @column failed_model VARCHAR | The model that failed.
-- @column message VARCHAR | What DuckDB said of it.
-- @column input VARCHAR | First file of the run.
-- @column more_inputs BIGINT files | Further files of the run.
SELECT
    run_id,
    ''::VARCHAR AS failed_model,
    ''::VARCHAR AS message,
    ''::VARCHAR AS input,
    0::BIGINT AS more_inputs
FROM runs
WHERE false
