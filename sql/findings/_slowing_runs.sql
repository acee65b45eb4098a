-- Runs whose steps took ever longer, little by little: by fifths of their steps, of at least 10 records each.
-- The median of each fifth exceeds that of the one before by a tenth of the whole growth or more, and all of them that
-- of the first in the mean by more than noise.
-- @grain run_id
-- @column fifths_ms DOUBLE[] ms | Median of each fifth.
-- @column longer_ms DOUBLE ms | What steps took longer than the median of the first fifth, in the mean.
-- @column bound_ms DOUBLE ms | What that must exceed, as in run_history.
WITH steady AS (
    SELECT
        s.run_id, s.step_ms, coalesce(l.record, s.step) AS record,
        (row_number() OVER (PARTITION BY s.run_id ORDER BY s.step) - 1) * 5
            // count(*) OVER (PARTITION BY s.run_id) AS fifth
    FROM step_stats AS s
    LEFT JOIN _log_records AS l USING (run_id, step)
    WHERE NOT s.warmup AND s.step_ms IS NOT NULL
),
fifths AS (
    SELECT
        run_id, fifth,
        median(step_ms) AS fifth_ms,
        mad(step_ms) AS mad_ms,
        count(*) AS steps,
        -- A mean over several steps is one observation.
        count(DISTINCT record) AS seen
    FROM steady
    GROUP BY run_id, fifth
),
grown AS (
    SELECT
        *,
        fifth_ms - lag(fifth_ms) OVER (PARTITION BY run_id ORDER BY fifth) AS more_ms,
        first_value(fifth_ms) OVER (PARTITION BY run_id ORDER BY fifth) AS first_ms
    FROM fifths
),
growth AS (
    SELECT
        run_id,
        list(fifth_ms ORDER BY fifth) AS fifths_ms,
        ordered_sum(steps * (fifth_ms - first_ms)) / sum(steps) AS longer_ms,
        noise_bound(min(fifth_ms), arg_min(mad_ms, fifth), min(fifth_ms), 0) AS bound_ms,
        sum(steps)::BIGINT AS steps,
        min(more_ms) AS least_ms,
        min(seen) AS seen
    FROM grown
    GROUP BY run_id
)
SELECT g.run_id, g.fifths_ms, g.longer_ms, g.bound_ms, g.steps
FROM growth AS g
-- More work in a step takes longer, and a jump says more.
ANTI JOIN _uneven_runs USING (run_id)
ANTI JOIN _slowed_runs USING (run_id)
WHERE g.seen >= 10
    AND g.least_ms >= 0.1 * (g.fifths_ms[5] - g.fifths_ms[1])
    AND g.longer_ms > g.bound_ms
