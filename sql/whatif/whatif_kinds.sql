-- What each kind of operation costs the run, where ranks differ in it.
-- @grain run_id, kind
-- @column kind VARCHAR | Operation, collective and group as in `all_reduce:tp`, `all_reduce:tp:async` where its caller computes meanwhile, or send_recv with its direction.
-- @column slowdown_ratio DOUBLE | Step with this kind as it was and equal peers elsewhere, over the step with equal peers everywhere.
-- @column lost_ms DOUBLE ms | What a step would take less if the peers were equal in this kind.
-- @column reason VARCHAR | Why there is no figure, as in whatif_ranks.
WITH kinds AS (
    SELECT run_id, kind FROM _whatif_operations
    UNION
    SELECT run_id, call_kind(collective, group_kind, overlapped)
    FROM (
        SELECT DISTINCT c.run_id, c.collective, c.group_kind, c.overlapped
        FROM _comm_matches AS c
        SEMI JOIN (FROM _whatif_operations WHERE calls > 0) AS o USING (run_id, rank, seq)
        WHERE c.sub > 0 AND replayed(c.matched, c.group_size, c.begin_ns, c.finish_ns)
    ) AS called
    UNION
    SELECT o.run_id, 'send_recv:' || split_part(o.op, '_', 1)
    FROM _whatif_operations AS o
    SEMI JOIN _whatif_messages AS m USING (run_id, rank, seq)
)
SELECT
    k.run_id,
    k.kind,
    s.slowdown_ratio,
    s.lost_ms,
    CASE WHEN j.abstains OR s.run_id IS NOT NULL THEN j.reason ELSE 'no_slowdown' END AS reason
FROM kinds AS k
JOIN _whatif_judged AS j USING (run_id)
LEFT JOIN _whatif_subjects AS s
    ON s.run_id = k.run_id AND s.scenario = 'kind' AND s.subject = k.kind
