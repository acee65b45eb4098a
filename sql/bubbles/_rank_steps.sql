-- What a rank did in a step: how many passes it made, and from when to when.
-- @grain run_id, step, rank
-- @column forwards BIGINT calls | Timed forward steps, those written twice counted once.
-- @column backwards BIGINT calls | Timed backward steps, likewise.
-- @column passes BIGINT calls | The most forward or backward steps that a rank made in this step.
-- @column doubled BIGINT calls | Operations that were written twice.
-- @column doubled_op VARCHAR | The first of them.
-- @column doubled_line BIGINT | Its line.
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
        count(i.seq) FILTER (o.kind = 'forward' AND NOT i.doubled) AS forwards,
        count(i.seq) FILTER (o.kind = 'backward' AND NOT i.doubled) AS backwards,
        count(*) FILTER (i.doubled) AS doubled,
        arg_min(o.op, o.line) FILTER (i.doubled) AS doubled_op,
        min(o.line) FILTER (i.doubled) AS doubled_line,
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
    max(greatest(forwards, backwards)) OVER (PARTITION BY run_id, step) AS passes,
    forwards = backwards AND forwards > 0 AND forwards = passes AS finished
FROM seen
