-- What a rank did in a step: how many passes it made, and from when to when.
-- @internal
-- @grain run_id, step, rank
-- @column forwards BIGINT calls | Timed forward steps.
-- @column backwards BIGINT calls | Timed backward steps.
-- @column finished BOOLEAN | As many forward as backward steps, and as many as any rank made in this step.
-- @column first_ns BIGINT ns | Earliest start of an operation.
-- @column last_ns BIGINT ns | Latest end of an operation.
-- @column last_backward_ns BIGINT ns | Latest end of a backward step.
-- @column overlap_ns BIGINT ns | Overlap of operations, a fault of the trace.
WITH seen AS (
    SELECT
        o.run_id,
        o.step,
        o.rank,
        -- What says nothing about the schedule may print another stage.
        coalesce(min(o.stage) FILTER (o.kind IS NOT NULL), min(o.stage)) AS stage,
        count(i.seq) FILTER (o.kind = 'forward') AS forwards,
        count(i.seq) FILTER (o.kind = 'backward') AS backwards,
        min(i.start_ns) AS first_ns,
        max(i.end_ns) AS last_ns,
        max(i.end_ns) FILTER (o.kind = 'backward') AS last_backward_ns,
        try_cast(coalesce(sum(i.overlap_ns), 0) AS BIGINT) AS overlap_ns
    FROM ops AS o
    LEFT JOIN _op_intervals AS i USING (run_id, rank, seq)
    GROUP BY ALL
)
SELECT
    *,
    forwards = backwards AND forwards > 0
        AND forwards = max(greatest(forwards, backwards)) OVER (PARTITION BY run_id, step)
        AS finished
FROM seen
