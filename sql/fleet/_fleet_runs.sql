-- Runs that are compared with each other: a run that is a copy of another under a second name is not.
-- Runs of which no size of the job is known have no configuration: the batch alone tells no jobs apart,
-- nor does the number of ranks that a trace without messages between them prints.
-- @scope fleet
-- @grain run_id
-- @column measured BOOLEAN | It has a figure that is watched, or times of its stages.
-- @column judged BOOLEAN | It is measured, and complete, or no ranks are expected: steps of a log have whole times also where its job broke off.
-- @column judged_before BIGINT | Such runs of its configuration before it, those of one date by run_id; NULL without a date or a configuration.
WITH listed AS (
    SELECT * REPLACE (
        CASE
            WHEN NOT regexp_full_match(
                CASE WHEN profiled AND topology_source['world_size'] IS DISTINCT FROM 'set'
                    THEN regexp_replace(config, ' (world_size=\d+|[a-z]+=1)\b', '', 'g') ELSE config
                END,
                'format=\S+( simulated=true)?( micro_batch_size=\d+)?( global_batch_size=\d+)?'
            ) THEN config
        END AS config
    ),
    run_id IN (
        SELECT run_id FROM _run_metrics WHERE value IS NOT NULL
        UNION ALL
        SELECT run_id FROM stage_balance WHERE micro_batch_ms IS NOT NULL
    ) AS measured
    FROM runs
),
known AS (
    SELECT *, measured AND (coalesce(complete, false) OR ranks_seen IS NULL) AS judged FROM listed
)
SELECT
    run_id,
    config,
    run_date,
    measured,
    judged,
    world_size,
    CASE WHEN run_date IS NOT NULL AND config IS NOT NULL THEN
        count(CASE WHEN judged AND run_date IS NOT NULL THEN 1 END) OVER (
            PARTITION BY config
            ORDER BY run_date NULLS FIRST, run_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
    END AS judged_before
FROM known
ANTI JOIN _run_copies USING (run_id)
