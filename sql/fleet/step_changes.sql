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
WITH shared AS (
    SELECT DISTINCT run_id
    FROM op_shares
),
baselines AS (
    SELECT b.run_id, count(*) AS runs
    FROM _baseline_runs AS b
    SEMI JOIN shared AS s ON s.run_id = b.earlier_run_id
    SEMI JOIN shared AS r ON r.run_id = b.run_id
    GROUP BY b.run_id
    HAVING count(*) >= 3
),
steps AS (
    SELECT
        b.run_id,
        b.runs,
        h.step_p50_ms_baseline AS baseline_ms,
        h.step_p50_ms AS run_ms
    FROM baselines AS b
    JOIN run_history AS h USING (run_id)
    WHERE h.step_p50_ms IS NOT NULL AND h.step_p50_ms_baseline IS NOT NULL
),
earlier AS (
    SELECT
        t.run_id, s.op, s.kind, s.stage,
        -- A run without the operation spent nothing on it.
        list_median(
            list(s.share_ms) || list_resize([]::DOUBLE[], (any_value(t.runs) - count(*))::BIGINT, 0)
        ) AS baseline_ms
    FROM steps AS t
    JOIN _baseline_runs AS b USING (run_id)
    JOIN op_shares AS s ON s.run_id = b.earlier_run_id
    GROUP BY t.run_id, s.op, s.kind, s.stage
),
own AS (
    SELECT run_id, op, kind, stage, share_ms AS run_ms
    FROM op_shares
    SEMI JOIN steps USING (run_id)
),
operations AS (
    SELECT
        coalesce(e.run_id, o.run_id) AS run_id,
        coalesce(e.op, o.op) AS op,
        coalesce(e.kind, o.kind) AS kind,
        coalesce(e.stage, o.stage) AS stage,
        coalesce(e.baseline_ms, 0) AS baseline_ms,
        coalesce(o.run_ms, 0) AS run_ms
    FROM earlier AS e
    FULL JOIN own AS o
        ON o.run_id = e.run_id AND o.op = e.op AND o.kind = e.kind
        AND o.stage IS NOT DISTINCT FROM e.stage
),
changes AS (
    SELECT * FROM operations
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
