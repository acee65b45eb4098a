-- How far one clock is ahead of another, whether it gains on it, and how well that is known.
-- Ends of collectives before messages, and of messages those with the shortest round trip. A drift
-- is believed where a line through all readings halves the scatter that a constant leaves, up to the
-- 200 ppm that no two crystals exceed. What drift the scatter can hide, at most that of two crystals
-- of 50 ppm, counts for the time without readings.
-- @grain run_id, clock, other
-- @column samples BIGINT | Readings behind it.
-- @column offset_ns BIGINT ns | Reading of `other` minus that of `clock`, when `clock` reads its origin.
-- @column drift DOUBLE | What `other` gains per unit of time.
-- @column hidden_drift DOUBLE | Drift that the scatter can hide.
-- @column uncertainty_ns BIGINT ns | What 19 of 20 of these readings scatter by and a clock tick, with fewer than 20 at least 0.1 ms, half the round trip, and the hidden drift before the first reading or after the last.
WITH ticks AS (
    SELECT run_id, coalesce(clock_tick_ns, 0) AS tick_ns FROM runs
),
best AS (
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
    SELECT
        *,
        unnest(list_distinct([
            0, ratio(samples * xy - x * y, samples * xx - x * x) / 1000
        ])) AS drift
    FROM sums
),
residuals AS (
    SELECT
        b.run_id, b.clock, b.other, c.drift, b.narrow,
        b.ahead_ns - b.base_ns - c.drift * b.at_ns AS residual
    FROM best AS b
    JOIN candidates AS c USING (run_id, clock, other)
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
        greatest(
            quantile_cont(abs(r.residual - c.centre), 0.95) FILTER (r.narrow) + any_value(t.tick_ns),
            -- Ends of one call lie within 0.08 ms in 19 of 20 calls of the public traces.
            CASE WHEN count(*) FILTER (r.narrow) < 20 THEN 100000 END
        ) AS scatter
    FROM residuals AS r
    JOIN centres AS c USING (run_id, clock, other, drift)
    JOIN ticks AS t USING (run_id)
    GROUP BY r.run_id, r.clock, r.other, r.drift
),
judged AS (
    SELECT
        s.*, m.* EXCLUDE (run_id, clock, other, x, y, xx, xy), t.tick_ns,
        least(1e-4, ratio(2 * (s.spread + m.half_ns) + t.tick_ns, m.last_ns - m.first_ns))
            AS hidden_drift,
        max(s.spread) FILTER (s.drift = 0) OVER link AS constant_spread
    FROM spreads AS s
    JOIN sums AS m USING (run_id, clock, other)
    JOIN ticks AS t USING (run_id)
    WINDOW link AS (PARTITION BY s.run_id, s.clock, s.other)
)
SELECT
    c.run_id, c.clock, c.other, c.basis, c.samples,
    c.base_ns + round(c.centre)::BIGINT AS offset_ns,
    c.drift,
    c.hidden_drift,
    c.half_ns
        + round(c.scatter + c.hidden_drift * greatest(c.first_ns, k.span_ns - c.last_ns))::BIGINT
        AS uncertainty_ns
FROM judged AS c
JOIN _clocks AS k USING (run_id, clock)
QUALIFY row_number() OVER (
    PARTITION BY c.run_id, c.clock, c.other
    ORDER BY
        c.drift <> 0 AND abs(c.drift) <= 2e-4 AND c.samples >= 8
            AND 2 * (c.spread + c.tick_ns) <= c.constant_spread DESC,
        c.drift = 0 DESC
) = 1
