-- Operations of runs whose ranks have several streams, with their place in the stage's order.
-- @grain run_id, rank, seq
-- @column replica INTEGER | Place of the rank within its stage.
-- @column known BOOLEAN | The stage's lowest rank has such an operation in the first step.
-- @column call VARCHAR | Equal for the operations that end together.
WITH numbered AS (
    SELECT
        run_id, rank, step, seq, stage, op,
        row_number() OVER (PARTITION BY run_id, rank, step, op ORDER BY seq) AS number,
        (dense_rank() OVER (PARTITION BY run_id, stage ORDER BY rank) - 1)::INTEGER AS replica
    FROM ops
    WHERE stream IS NOT NULL
)
SELECT
    n.*,
    t.op IS NOT NULL AS known,
    t.meeting || CASE WHEN t.across THEN '' ELSE ':' || n.replica END AS call
FROM numbered AS n
LEFT JOIN _whatif_template AS t
    ON t.run_id = n.run_id AND t.stage = n.stage AND t.op = n.op AND t.number = n.number
