-- What each rank costs the run: the step if only this rank were as it was, and if only it were fixed.
-- @grain run_id, rank
-- @column slowdown_ratio DOUBLE | Step with this rank as it was and equal peers elsewhere, over the step with equal peers everywhere. 1 where all it takes longer than its peers is under 0.1 % of the step.
-- @column fixed_ratio DOUBLE | Part of what equal peers would save that fixing this rank alone would.
-- @column lost_ms DOUBLE ms | What a step would take less if this rank were as fast as its peers. With one peer at least that: the median then lies between the two.
-- @column reason VARCHAR | Why there is no figure; no_slowdown: equal peers would save less than 3 %; one_peer: there are figures, but fewer than 3 peers.
WITH ranks AS (
    SELECT o.run_id, o.rank, min(o.stage) AS stage
    FROM ops AS o
    SEMI JOIN _whatif_scope AS s USING (run_id)
    GROUP BY o.run_id, o.rank
)
SELECT
    k.run_id,
    k.rank,
    k.stage,
    CASE WHEN figures THEN coalesce(s.slowdown_ratio, 1) END AS slowdown_ratio,
    CASE WHEN figures THEN coalesce(s.fixed_ratio, 0) END AS fixed_ratio,
    CASE WHEN figures THEN coalesce(s.lost_ms, 0) END AS lost_ms,
    CASE WHEN j.abstains OR figures THEN j.reason ELSE 'no_slowdown' END AS reason
FROM ranks AS k
JOIN (
    SELECT *, NOT abstains AND t_ms >= 1.03 * peer_ms AS figures FROM _whatif_judged
) AS j USING (run_id)
LEFT JOIN _whatif_subjects AS s
    ON s.run_id = k.run_id AND s.scenario = 'rank' AND s.subject = k.rank::VARCHAR
