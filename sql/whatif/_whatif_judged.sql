-- Runs with the means of their replayed steps, and why they say nothing.
-- @grain run_id
-- @column steps BIGINT steps | Steps replayed, warm-up left out.
-- @column t_ms DOUBLE ms | Mean of the steps.
-- @column peer_ms DOUBLE ms | Mean of the steps.
-- @column balanced_ms DOUBLE ms | Mean of the steps.
-- @column s_paper DOUBLE | Slowdown of the published analysis, of the sums over steps.
-- @column s_peer_min DOUBLE | Least of the steps.
-- @column s_peer_max DOUBLE | Largest of the steps.
-- @column replay_error_ratio DOUBLE | Largest of the steps.
-- @column delay_ratio DOUBLE | Part of all steps' time.
-- @column abstains BOOLEAN | There is a reason to give no figure.
WITH sums AS (
    SELECT
        run_id,
        count(*) AS steps,
        ordered_mean(t_ms) AS t_ms,
        ordered_mean(peer_ms) AS peer_ms,
        ordered_mean(balanced_ms) AS balanced_ms,
        min(s_peer) AS s_peer_min,
        max(s_peer) AS s_peer_max,
        max(replay_error_ratio) AS replay_error_ratio,
        1 - ratio(ordered_sum(t_ms), ordered_sum(t_ms / (1 - delay_ratio))) AS delay_ratio
    FROM whatif_steps
    GROUP BY run_id
),
papers AS (
    SELECT
        run_id,
        ratio(
            sum(time_ns) FILTER (scenario = 'raw'), sum(time_ns) FILTER (scenario = 'mean')
        ) AS s_paper
    FROM _whatif_replays
    GROUP BY run_id
),
peers AS (
    SELECT run_id, min(ranks) AS ranks
    FROM (
        SELECT run_id, stage, count(DISTINCT rank) AS ranks
        FROM _whatif_operations
        GROUP BY run_id, stage
    ) AS stages
    GROUP BY run_id
)
SELECT
    c.run_id,
    coalesce(s.steps, 0) AS steps,
    s.* EXCLUDE (run_id, steps),
    p.s_paper,
    CASE
        WHEN c.lack IS NOT NULL THEN c.lack
        WHEN s.replay_error_ratio > 0.01 THEN 'replay_error'
        WHEN s.delay_ratio > 0.05 THEN 'delays'
        WHEN n.ranks < 4 THEN 'one_peer'
    END AS reason,
    coalesce(reason <> 'one_peer', false) AS abstains
FROM (SELECT run_id, reason AS lack FROM _whatif_scope) AS c
LEFT JOIN sums AS s USING (run_id)
LEFT JOIN papers AS p USING (run_id)
LEFT JOIN peers AS n USING (run_id)
