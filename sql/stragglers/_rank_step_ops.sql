-- Time that a rank spent in each kind of local operation in a step, communication left out.
-- @grain run_id, step, rank, op
-- @column calls BIGINT calls | How often the operation ran, written twice counts once.
-- @column own_ns BIGINT ns | Durations without the communication inside; NULL where one has no time.
SELECT
    o.run_id,
    o.step,
    o.rank,
    min(o.stage) AS stage,
    o.op,
    o.kind,
    count(*) AS calls,
    CASE WHEN count(o.duration_ns) = count(*)
        THEN try_cast(sum(o.duration_ns - coalesce(c.comm_ns, 0)) AS BIGINT)
    END AS own_ns
FROM ops AS o
LEFT JOIN _op_comm AS c USING (run_id, rank, seq)
ANTI JOIN (SELECT run_id, rank, seq FROM _op_intervals WHERE doubled) AS d USING (run_id, rank, seq)
WHERE o.category IN ('compute', 'data', 'optimizer')
GROUP BY o.run_id, o.step, o.rank, o.op, o.kind
