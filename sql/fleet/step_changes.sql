-- Where the difference between a run's step time and its baseline went, operation by operation.
-- Shares are those of op_shares; of the baseline, their median over its runs that have shares, of
-- which there must be 3. The row `rest` holds what is left of the difference between the medians
-- of run_history, so that changes add up to it exactly. Logs have no operations and no rows.
-- @report What changed against the baseline
-- @scope fleet
-- @grain run_id, op, kind, stage?
-- @column op VARCHAR | As in op_shares; `rest` for what no share explains.
-- @column kind VARCHAR | As in op_shares: compute, data, comm, overlap, p2p, optimizer, wait; or rest.
-- @column stage INTEGER | Stage of the ranks; NULL for `nobody` and `rest`.
-- @column baseline_ms DOUBLE ms | Its share of a step in the baseline.
-- @column run_ms DOUBLE ms | Its share of a step in the run.
-- @column change_ms DOUBLE ms | run_ms less baseline_ms.
-- @column share_ratio DOUBLE | change_ms over the change of the step; NULL where the step did not change.
WITH series AS (
    SELECT f.*, s.run_id IS NOT NULL AS shared
    FROM _fleet_runs AS f
    LEFT JOIN (SELECT DISTINCT run_id FROM op_shares) AS s USING (run_id)
    WHERE f.judged_before IS NOT NULL
),
names AS (
    SELECT *, row_number() OVER () AS name
    FROM (SELECT DISTINCT config, op, kind, stage FROM op_shares JOIN series USING (run_id))
),
-- Every operation of a configuration in each of its runs: one without it spent nothing on it.
filled AS (
    SELECT
        r.run_id,
        r.judged,
        r.judged_before,
        n.name,
        s.share_ms,
        CASE WHEN r.shared THEN coalesce(s.share_ms, 0) END AS run_ms
    FROM series AS r
    JOIN names AS n USING (config)
    LEFT JOIN op_shares AS s
        ON s.run_id = r.run_id AND s.op = n.op AND s.kind = n.kind
        AND s.stage IS NOT DISTINCT FROM n.stage
),
-- By number of judged runs before: each of them has a row, so that rows can be counted.
baselines AS (
    SELECT
        name,
        judged_before + 1 AS judged_before,
        median(run_ms) OVER baseline AS baseline_ms,
        count(run_ms) OVER baseline AS runs,
        count(share_ms) OVER baseline AS shares
    FROM filled
    WHERE judged
    WINDOW baseline AS (
        PARTITION BY name ORDER BY judged_before
        ROWS BETWEEN baseline_runs() - 1 PRECEDING AND CURRENT ROW
    )
),
operations AS (
    SELECT f.run_id, n.op, n.kind, n.stage, b.baseline_ms, f.run_ms
    FROM filled AS f
    JOIN baselines AS b USING (name, judged_before)
    JOIN names AS n USING (name)
    WHERE f.run_ms IS NOT NULL AND b.runs >= 3 AND (f.share_ms IS NOT NULL OR b.shares > 0)
),
steps AS (
    SELECT run_id, h.step_p50_ms_baseline AS baseline_ms, h.step_p50_ms AS run_ms
    FROM run_history AS h
    SEMI JOIN operations USING (run_id)
    WHERE h.step_p50_ms_baseline IS NOT NULL
),
changes AS (
    SELECT * FROM operations SEMI JOIN steps USING (run_id)
    UNION ALL
    SELECT
        t.run_id, 'rest', 'rest', NULL,
        any_value(t.baseline_ms) - ordered_sum(o.baseline_ms),
        any_value(t.run_ms) - ordered_sum(o.run_ms)
    FROM steps AS t
    JOIN operations AS o USING (run_id)
    GROUP BY t.run_id
)
SELECT
    c.run_id,
    c.op,
    c.kind,
    c.stage,
    c.baseline_ms,
    c.run_ms,
    c.run_ms - c.baseline_ms AS change_ms,
    ratio(change_ms, t.run_ms - t.baseline_ms) AS share_ratio
FROM changes AS c
JOIN steps AS t USING (run_id)
