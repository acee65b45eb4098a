-- From when to when a rank was in a step, by the rank's own clock.
-- @grain run_id, rank, step
-- @column ended BOOLEAN | The optimizer ran in the step.
-- @column start_ns BIGINT ns | Earliest start of an operation.
-- @column end_ns BIGINT ns | Latest end of an operation.
-- @column passes_start_ns BIGINT ns | Earliest start of a forward or backward step.
-- @column passes_end_ns BIGINT ns | Latest end of a forward or backward step.
SELECT
    run_id,
    rank,
    step,
    bool_or(kind = 'optimizer') AS ended,
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns,
    min(start_ns) FILTER (kind IN ('forward', 'backward')) AS passes_start_ns,
    max(end_ns) FILTER (kind IN ('forward', 'backward')) AS passes_end_ns
FROM ops
GROUP BY run_id, rank, step
