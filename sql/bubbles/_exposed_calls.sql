-- When the device of a rank communicates inside a pass and no kernel or copy runs beside: the pass waits for it.
-- Of traces of kernels whose passes are annotated. Messages are no part of a pass.
-- @grain run_id, rank, seq, sub_seq
-- @column seq BIGINT | The pass.
-- @column sub_seq INTEGER | Place of the interval among those of the rank.
WITH passes AS (
    SELECT run_id, rank, seq, start_ns, end_ns
    FROM ops
    WHERE kind IN ('forward', 'backward')
        AND run_id IN (SELECT run_id FROM ops WHERE stream IS NOT NULL AND kind IS NULL)
),
work AS (
    SELECT o.run_id, o.rank, o.start_ns, o.end_ns, c.collective
    FROM ops AS o
    LEFT JOIN comms AS c ON c.run_id = o.run_id AND c.rank = o.rank AND c.seq = o.seq AND c.sub_seq IS NULL
    WHERE o.stream IS NOT NULL AND o.kind IS NULL AND o.run_id IN (SELECT run_id FROM passes)
        AND coalesce(c.collective NOT IN ('send', 'recv'), true)
),
events AS (
    SELECT run_id, rank, start_ns AS at_ns, collective IS NULL AS computes, 1 AS change FROM work
    UNION ALL
    SELECT run_id, rank, end_ns, collective IS NULL, -1 FROM work
    UNION ALL
    SELECT run_id, rank, unnest([start_ns, end_ns]), true, 0 FROM passes
),
moments AS (
    SELECT
        run_id, rank, at_ns,
        lead(at_ns) OVER timeline AS until_ns,
        sum(sum(CASE WHEN computes THEN change ELSE 0 END)) OVER timeline AS computing,
        sum(sum(CASE WHEN computes THEN 0 ELSE change END)) OVER timeline AS calling
    FROM events
    GROUP BY run_id, rank, at_ns
    WINDOW timeline AS (PARTITION BY run_id, rank ORDER BY at_ns)
)
SELECT
    m.run_id, m.rank, p.seq,
    row_number() OVER (PARTITION BY m.run_id, m.rank ORDER BY m.at_ns)::INTEGER AS sub_seq,
    m.at_ns AS start_ns, m.until_ns AS end_ns
FROM moments AS m
ASOF JOIN passes AS p ON p.run_id = m.run_id AND p.rank = m.rank AND p.start_ns <= m.at_ns
WHERE m.computing = 0 AND m.calling > 0 AND m.at_ns < p.end_ns
