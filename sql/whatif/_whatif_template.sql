-- Operations of a stage in runs whose ranks have several streams: what its lowest rank did in the first step.
-- All ranks of the stage do the same in every step, so order and partners follow from here.
-- A trace may record a message that was not sent. A receive that began after the last pass of its
-- direction, or a send that ended before the first one, is none. Neither is a message that would
-- leave the model at its first or last chunk.
-- @grain run_id, stage, op, number
-- @column number BIGINT | Place among the operations of this name in the step, from 1.
-- @column place BIGINT | Place among the operations of the stream, from 1.
-- @column direction VARCHAR | forward or backward, of passes and messages.
-- @column pass_number BIGINT | Pass of its direction that a message feeds or leaves; NULL where it was not sent.
-- @column meeting VARCHAR | Equal for operations that end together, of stages and of the ranks within them.
-- @column across BOOLEAN | Ranks of a stage end it together.
-- @column members BIGINT | Stages that end it together.
WITH workers AS (
    SELECT
        run_id, stage, min(rank) AS rank,
        min(min(step)) OVER run AS step,
        max(stage) OVER run + 1 AS stages,
        coalesce(max(max(chunk)) OVER run, 0) + 1 AS chunks
    FROM ops
    WHERE stream IS NOT NULL AND stage IS NOT NULL
    GROUP BY run_id, stage
    WINDOW run AS (PARTITION BY run_id)
),
listed AS (
    SELECT
        run_id, stage, o.op, o.stream, o.seq, coalesce(o.chunk, 0) AS chunk, o.start_ns, o.end_ns,
        w.stages, w.chunks,
        o.pass AS direction,
        o.kind = 'recv' AS receives,
        (o.kind = 'recv') = (o.pass = 'forward') AND o.kind IN ('recv', 'send') AS from_before,
        row_number() OVER (PARTITION BY run_id, stage, o.op ORDER BY o.seq) AS number,
        row_number() OVER (PARTITION BY run_id, stage, o.stream ORDER BY o.seq) AS place
    FROM ops AS o
    JOIN workers AS w USING (run_id, stage, rank, step)
),
passes AS (
    SELECT run_id, stage, direction, count(*) AS passes, max(start_ns) AS last_ns, min(end_ns) AS first_ns
    FROM listed
    WHERE stream = 'compute' AND direction IS NOT NULL
    GROUP BY run_id, stage, direction
),
messages AS (
    SELECT
        m.*, p.passes,
        -- Clocks of streams are this far apart at most.
        coalesce(CASE WHEN m.receives
            THEN m.start_ns <= p.last_ns + 50000 ELSE m.end_ns >= p.first_ns - 50000
        END, false) AS sent
    FROM listed AS m
    LEFT JOIN passes AS p USING (run_id, stage, direction)
    WHERE m.direction IS NOT NULL AND m.stream <> 'compute'
),
fed AS (
    -- Where there is one receive too few, the first pass has none.
    SELECT
        *,
        CASE WHEN sent THEN
            count(CASE WHEN sent THEN 1 END) OVER (PARTITION BY run_id, stage, op ORDER BY seq)
            + (receives AND count(CASE WHEN sent THEN 1 END) OVER (PARTITION BY run_id, stage, op) + 1 = passes)::INTEGER
        END AS pass_number
    FROM messages
),
placed AS (
    SELECT
        m.*,
        p.chunk * m.stages + m.stage + CASE WHEN m.from_before THEN -1 ELSE 1 END
            BETWEEN 0 AND m.chunks * m.stages - 1 AS within
    FROM fed AS m
    LEFT JOIN listed AS p
        ON p.run_id = m.run_id AND p.stage = m.stage AND p.direction = m.direction
        AND p.stream = 'compute' AND p.number = m.pass_number
),
met AS (
    SELECT
        run_id, stage, op, number, pass_number,
        CASE WHEN within THEN concat_ws(':',
            direction,
            CASE WHEN NOT receives THEN stage
                ELSE (stage + CASE WHEN from_before THEN -1 ELSE 1 END + stages) % stages
            END,
            count(CASE WHEN within THEN 1 END) OVER (PARTITION BY run_id, stage, op ORDER BY seq)
        ) END AS meeting
    FROM placed
),
named AS (
    SELECT
        l.* EXCLUDE (start_ns, end_ns, receives, from_before, stages, chunks),
        m.pass_number,
        CASE
            WHEN l.op IN ('params_all_gather', 'grads_reduce_scatter', 'separate_grads_all_reduce')
                THEN concat_ws(':', l.op, l.stage, l.number)
            WHEN l.op IN ('ep_allreduce', 'optimizer_clip') THEN concat_ws(':', l.op, l.number)
            ELSE m.meeting
        END AS meeting,
        l.op IN (
            'params_all_gather', 'grads_reduce_scatter', 'separate_grads_all_reduce', 'optimizer_clip'
        ) AS across
    FROM listed AS l
    LEFT JOIN met AS m USING (run_id, stage, op, number)
)
SELECT
    *,
    CASE WHEN meeting IS NOT NULL THEN count(*) OVER (PARTITION BY run_id, meeting) END AS members
FROM named
