-- Whether the times of a step's ranks can be compared, and how far off a difference of two can be.
-- @grain run_id, step
-- @column aligned BOOLEAN | One clock, or clocks that were related, and all ranks met in some step.
-- @column met BOOLEAN | Its finished ranks overlap: all had begun before one ended.
-- @column uncertainty_ns BIGINT ns | At most; 0 on one clock.
WITH steps AS (
    SELECT
        run_id, step,
        coalesce(max(first_ns) FILTER (finished) < min(last_ns) FILTER (finished), true) AS met,
        count(*) FILTER (finished) > 1 AS several
    FROM _rank_steps
    GROUP BY run_id, step
),
meetings AS (
    SELECT
        run_id, step, met,
        coalesce(bool_or(met) FILTER (several) OVER (PARTITION BY run_id), true) AS ever_met
    FROM steps
),
by_clock AS (
    SELECT
        s.run_id, s.step, c.clock,
        bool_and(c.offset_ns IS NOT NULL) AS known,
        min(c.anchor) AS anchor,
        min(c.near_ns) AS near_ns,
        min(c.uncertainty_ns) AS uncertainty_ns
    FROM _rank_steps AS s
    JOIN clock_offsets AS c USING (run_id, rank)
    WHERE s.first_ns IS NOT NULL
    GROUP BY s.run_id, s.step, c.clock
)
SELECT
    run_id,
    step,
    -- Every rank of a step waits for others: ranks that never met, in no step, were read from two clocks.
    (count(*) = 1 OR bool_and(known)) AND any_value(ever_met) AS aligned,
    any_value(met) AS met,
    clocks_open_ns(anchor, near_ns, uncertainty_ns) AS uncertainty_ns
FROM by_clock
JOIN meetings USING (run_id, step)
GROUP BY run_id, step
