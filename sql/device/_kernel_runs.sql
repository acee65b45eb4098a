-- Runs whose traces have kernels and copies of a device, and no passes of a schedule.
-- @grain run_id
SELECT run_id
FROM ops
GROUP BY run_id
HAVING bool_or(stream IS NOT NULL) AND NOT bool_or(coalesce(kind IN ('forward', 'backward'), false))
