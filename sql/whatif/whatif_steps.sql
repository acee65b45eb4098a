-- How long each step would have taken with peers of equal speed, and with balanced stages.
-- Replayed without delays, see whatif_runs; NULL where the run cannot be replayed.
-- @grain run_id, step
-- @column t_ms DOUBLE ms | The step replayed with its own lengths.
-- @column peer_ms DOUBLE ms | With the median lengths of peers.
-- @column balanced_ms DOUBLE ms | With stages that compute equally long, too; NULL as in whatif_runs.
-- @column s_peer DOUBLE | t_ms over peer_ms.
-- @column s_balance DOUBLE | peer_ms over balanced_ms.
-- @column s_paper DOUBLE | The published analysis' slowdown: the ideal of compute is the mean over all stages.
-- @column paper_ms DOUBLE ms | The step replayed with its own lengths by the rules of the published analysis.
-- @column replay_error_ratio DOUBLE | How far the replay with delays is off the trace's step.
-- @column delay_ratio DOUBLE | Part of the step that is not explained by what operations wait for.
WITH spans AS (
    SELECT run_id, step, max(to_ns) - min(from_ns) AS span_ns
    FROM _whatif_operations
    GROUP BY run_id, step
),
-- An even split needs stages that do the same in each of their passes.
even AS (
    SELECT run_id, bool_and(works = all_works) AS even
    FROM (
        SELECT
            run_id,
            list((op, calls) ORDER BY op) AS works,
            max(list((op, calls) ORDER BY op)) OVER (PARTITION BY run_id) AS all_works
        FROM (
            SELECT run_id, stage, chunk, op, max(calls) AS calls
            FROM _whatif_operations
            WHERE (run_id, kind) IN (
                SELECT o.run_id, o.op FROM ops AS o WHERE o.kind IN ('forward', 'backward')
            )
            GROUP BY run_id, stage, chunk, op
        ) AS passes
        GROUP BY run_id, stage, chunk
    ) AS stages
    GROUP BY run_id
),
times AS (
    SELECT run_id, step, map_from_entries(list((scenario, time_ns))) AS ns
    FROM _whatif_replays
    WHERE subject = ''
    GROUP BY run_id, step
)
SELECT
    s.run_id,
    s.step,
    ns_to_ms(t.ns['actual']) AS t_ms,
    ns_to_ms(t.ns['peer']) AS peer_ms,
    CASE WHEN coalesce(e.even, true) THEN ns_to_ms(t.ns['balanced']) END AS balanced_ms,
    ratio(t.ns['actual'], t.ns['peer']) AS s_peer,
    CASE WHEN coalesce(e.even, true) THEN ratio(t.ns['peer'], t.ns['balanced']) END AS s_balance,
    ratio(t.ns['raw'], t.ns['mean']) AS s_paper,
    ns_to_ms(t.ns['raw']) AS paper_ms,
    CASE
        WHEN t.ns['delayed'] IS NULL THEN 1
        WHEN s.span_ns = t.ns['delayed'] THEN 0
        ELSE ratio(abs(s.span_ns - t.ns['delayed']), s.span_ns)
    END AS replay_error_ratio,
    1 - ratio(t.ns['actual'], t.ns['delayed']) AS delay_ratio
FROM spans AS s
JOIN times AS t USING (run_id, step)
LEFT JOIN even AS e USING (run_id)
