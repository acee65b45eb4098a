-- How long a rank waited for peers inside its operations, and who of its stage waited longest.
-- @grain run_id, rank
-- @column wait_ns BIGINT ns | Own waiting, summed over the steps where it is known.
-- @column waiting_rank INTEGER | Other rank of the stage that waited longest.
-- @column waiting_rank_ns BIGINT ns | How long it waited.
-- @column least_waiting BOOLEAN | Waited less than every other rank of the stage; NULL unless the waiting of all is known in equally many steps.
WITH waits AS (
    SELECT
        s.run_id,
        s.rank,
        min(s.stage) AS stage,
        try_cast(sum(w.wait_ns) AS BIGINT) AS wait_ns,
        count(w.wait_ns) AS known_steps
    FROM _rank_steps AS s
    LEFT JOIN _in_op_wait AS w USING (run_id, step, rank)
    GROUP BY s.run_id, s.rank
),
ordered AS (
    SELECT
        *,
        -- The longest waiter of the stage, or for that rank itself the next one.
        nth_value(rank, 1) OVER longest AS first_rank,
        nth_value(wait_ns, 1) OVER longest AS first_ns,
        nth_value(rank, 2) OVER longest AS second_rank,
        nth_value(wait_ns, 2) OVER longest AS second_ns,
        nth_value(wait_ns, 1) OVER shortest AS least_ns,
        nth_value(wait_ns, 2) OVER shortest AS next_least_ns,
        min(known_steps) OVER of_stage = max(known_steps) OVER of_stage AS known_alike
    FROM waits
    WINDOW of_stage AS (PARTITION BY run_id, stage),
    longest AS (
        PARTITION BY run_id, stage ORDER BY wait_ns DESC NULLS LAST, rank
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ),
    shortest AS (
        PARTITION BY run_id, stage ORDER BY wait_ns, rank
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
)
SELECT
    run_id,
    rank,
    wait_ns,
    CASE WHEN first_rank = rank THEN second_rank ELSE first_rank END AS waiting_rank,
    CASE WHEN first_rank = rank THEN second_ns ELSE first_ns END AS waiting_rank_ns,
    CASE WHEN known_alike THEN wait_ns = least_ns AND least_ns < next_least_ns END AS least_waiting
FROM ordered
