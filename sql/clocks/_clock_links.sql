-- How far one clock is ahead of another, whether it gains on it, and how well that is known.
-- Taken from the samples that are bounded most tightly, those of collectives before those of
-- messages. A drift is believed where a line halves the scatter that a constant leaves. Whatever
-- drift the scatter can hide, at most that of two crystals of 50 ppm, is reckoned from the first
-- reading back to the origin.
-- @internal
-- @grain run_id, clock, other
-- @column clock VARCHAR | Clock that is compared.
-- @column other VARCHAR | Clock that it is compared with.
-- @column basis VARCHAR | collectives or messages.
-- @column samples BIGINT | Readings behind it.
-- @column offset_ns BIGINT ns | Reading of `other` minus that of `clock`, when `clock` reads its origin.
-- @column drift DOUBLE | What `other` gains per unit of time.
-- @column uncertainty_ns BIGINT ns | What 19 of 20 readings scatter by, half the round trip, a clock tick, and the drift that may have gone unseen before the first reading.
WITH best AS (
    SELECT
        *,
        min(ahead_ns) OVER link AS base_ns,
        half_ns = min(half_ns) OVER link AS narrow
    FROM (
        SELECT *
        FROM _clock_samples
        QUALIFY basis = min(basis) OVER (PARTITION BY run_id, clock, other)
    ) AS preferred
    WINDOW link AS (PARTITION BY run_id, clock, other)
),
sums AS (
    -- In whole us, so that the squares of long traces fit; integers do not depend on their order.
    SELECT
        run_id, clock, other, min(basis) AS basis, min(base_ns) AS base_ns,
        count(*) AS samples,
        min(half_ns) AS half_ns,
        min(at_ns) AS first_ns,
        max(at_ns) AS last_ns,
        sum(at_ns // 1000) AS x,
        sum(ahead_ns - base_ns) AS y,
        sum((at_ns // 1000)::HUGEINT * (at_ns // 1000)) AS xx,
        sum((at_ns // 1000)::HUGEINT * (ahead_ns - base_ns)) AS xy
    FROM best
    GROUP BY run_id, clock, other
),
candidates AS (
    SELECT *, unnest([0, ratio(samples * xy - x * y, samples * xx - x * x) / 1000]) AS drift
    FROM sums
),
residuals AS (
    SELECT
        b.run_id, b.clock, b.other, c.drift, b.narrow,
        b.ahead_ns - b.base_ns - c.drift * b.at_ns AS residual
    FROM best AS b
    JOIN candidates AS c USING (run_id, clock, other)
    WHERE c.drift IS NOT NULL
),
centres AS (
    SELECT run_id, clock, other, drift, quantile_cont(residual, 0.5) FILTER (narrow) AS centre
    FROM residuals
    GROUP BY run_id, clock, other, drift
),
spreads AS (
    SELECT
        r.run_id, r.clock, r.other, r.drift, any_value(c.centre) AS centre,
        quantile_cont(abs(r.residual - c.centre), 0.95) AS spread,
        quantile_cont(abs(r.residual - c.centre), 0.95) FILTER (r.narrow) AS narrow_spread
    FROM residuals AS r
    JOIN centres AS c USING (run_id, clock, other, drift)
    GROUP BY r.run_id, r.clock, r.other, r.drift
),
judged AS (
    SELECT
        s.*, m.* EXCLUDE (run_id, clock, other, x, y, xx, xy),
        least(1e-4, ratio(2 * (s.spread + m.half_ns) + clock_tick_ns(), m.last_ns - m.first_ns))
            AS hidden_drift,
        max(s.spread) FILTER (s.drift = 0) OVER link AS constant_spread
    FROM spreads AS s
    JOIN sums AS m USING (run_id, clock, other)
    WINDOW link AS (PARTITION BY s.run_id, s.clock, s.other)
),
chosen AS (
    SELECT *
    FROM judged
    QUALIFY row_number() OVER (
        PARTITION BY run_id, clock, other
        ORDER BY
            drift <> 0 AND samples >= 8 AND 2 * (spread + clock_tick_ns()) <= constant_spread DESC,
            drift = 0 DESC
    ) = 1
)
SELECT
    run_id, clock, other, basis, samples,
    base_ns + round(centre)::BIGINT AS offset_ns,
    drift,
    half_ns + clock_tick_ns() + round(narrow_spread + hidden_drift * first_ns)::BIGINT
        AS uncertainty_ns
FROM chosen
