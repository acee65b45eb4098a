-- Whether the times of a step's ranks can be compared, and how far off a difference of two can be.
-- @internal
-- @grain run_id, step
-- @column aligned BOOLEAN | One clock, or clocks that were related, and all ranks met in some step.
-- @column uncertainty_ns BIGINT ns | At most; 0 on one clock.
WITH met AS (
    -- Every rank of a step waits for others: ranks that never met, in no step, were read from two clocks.
    SELECT run_id, bool_or(met) AS met
    FROM (
        SELECT run_id, max(first_ns) < min(last_ns) AS met
        FROM _rank_steps
        WHERE finished
        GROUP BY run_id, step
        HAVING count(*) > 1
    ) AS steps
    GROUP BY run_id
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
    (count(*) = 1 OR bool_and(known)) AND coalesce(any_value(met), true) AS aligned,
    clocks_open_ns(anchor, near_ns, uncertainty_ns) AS uncertainty_ns
FROM by_clock
LEFT JOIN met USING (run_id)
GROUP BY run_id, step
