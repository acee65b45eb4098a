-- What each rank, stage and kind of operation costs a run, by replay.
-- Runs that equal peers would speed up by less than 3 % have no rows: the difference is noise.
-- @grain run_id, scenario, subject
-- @column scenario VARCHAR | rank, stage or kind.
-- @column subject VARCHAR | Rank, stage or kind.
-- @column slowdown_ratio DOUBLE | Step with the subject's own lengths and the peers' elsewhere, over the step with the peers' everywhere.
-- @column fixed_ratio DOUBLE | Part of what equal peers would save that this subject alone would.
-- @column lost_ms DOUBLE ms | What a step would take less if the subject were as fast as its peers.
WITH means AS (
    SELECT
        run_id, what, subject,
        ns_to_ms(avg(time_ns) FILTER (scenario = what)) AS alone_ms,
        ns_to_ms(avg(time_ns) FILTER (scenario <> what)) AS without_ms
    FROM (SELECT *, replace(scenario, 'fix_', '') AS what FROM _whatif_replays) AS r
    WHERE subject <> ''
    GROUP BY ALL
)
SELECT
    m.run_id,
    m.what AS scenario,
    m.subject,
    ratio(m.alone_ms, j.peer_ms) AS slowdown_ratio,
    ratio(j.t_ms - m.without_ms, j.t_ms - j.peer_ms) AS fixed_ratio,
    greatest(0, j.t_ms - m.without_ms) AS lost_ms
FROM means AS m
JOIN _whatif_judged AS j USING (run_id)
WHERE NOT j.abstains AND j.t_ms >= 1.03 * j.peer_ms
