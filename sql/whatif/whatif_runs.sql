-- How long a step would have taken with peers of equal speed, what it costs that it did not, and why.
-- Every step is replayed on the graph of its operations and calls, without the delays that nothing
-- explains: with its own lengths, with the median lengths of peers, and with balanced stages.
-- @report What if
-- @grain run_id
-- @column steps BIGINT steps | Steps replayed, warm-up left out.
-- @column t_ms DOUBLE ms | Mean step, replayed with its own lengths.
-- @column peer_ms DOUBLE ms | Mean step, where every operation takes the median of its peers: the same operation of the same stage.
-- @column balanced_ms DOUBLE ms | Mean step, where stages compute equally long, too.
-- @column s_peer DOUBLE | t_ms over peer_ms: what slower peers cost.
-- @column s_balance DOUBLE | peer_ms over balanced_ms: what another split of the stages would bring.
-- @column s_paper DOUBLE | Slowdown as the published analysis defines it, for comparison: the ideal of compute is the mean over all stages.
-- @column cause VARCHAR | data: micro-batches of unequal size; one_rank, one_stage, link, one_kind: it alone explains half; unclear: neither does; stage_split: peers are equal, stages are not; none.
-- @column gpu_hours_lost DOUBLE GPU hours | Difference to peer_ms over all replayed steps on every rank; 0 where s_peer is below 1.03.
-- @column replay_error_ratio DOUBLE | Largest error of a step's replay with delays against the trace.
-- @column delay_ratio DOUBLE | Part of the steps' time that follows nothing: the replays leave it out.
-- @column reason VARCHAR | Why there is no figure; one_peer: there are figures, but ranks have fewer than 3 peers.
-- @column balance_reason VARCHAR | Why there is no balanced_ms.
-- @column s_peer_min DOUBLE | s_peer of the step where it is least.
-- @column s_peer_max DOUBLE | s_peer of the step where it is largest.
SELECT
    j.run_id,
    j.steps,
    f.t_ms, f.peer_ms, f.balanced_ms,
    ratio(f.t_ms, f.peer_ms) AS s_peer,
    ratio(f.peer_ms, f.balanced_ms) AS s_balance,
    f.s_paper,
    c.cause,
    CASE WHEN f.t_ms < 1.03 * f.peer_ms THEN 0
        ELSE r.world_size * (f.t_ms - f.peer_ms) * j.steps / 3.6e6
    END AS gpu_hours_lost,
    j.replay_error_ratio,
    j.delay_ratio,
    j.reason,
    f.s_peer_min, f.s_peer_max,
    CASE
        WHEN j.abstains THEN j.reason
        WHEN j.balanced_ms IS NULL THEN 'stages_differ'
    END AS balance_reason
FROM _whatif_judged AS j
LEFT JOIN (FROM _whatif_judged WHERE NOT abstains) AS f USING (run_id)
JOIN runs AS r USING (run_id)
JOIN _whatif_causes AS c USING (run_id)
