-- Operations of a rank as disjoint intervals of the reference clock, each under one part of the pipeline window.
-- Taken in order of start, an operation begins where the ones before it have ended, so that the
-- intervals cover exactly what any operation covers. An operation without a kind says
-- nothing about the schedule: it is no interval.
-- A rank whose clock cannot be related keeps its own: good among its own times, for no window.
-- @grain run_id, rank, seq
-- @column part VARCHAR | compute, data, p2p_recv, p2p_send or finalize. The lines of a fused send and receive are one interval, a receive, because it waits for the peer.
-- @column from_ns BIGINT ns | Start of the interval: start_ns, or the latest end before it where that is later.
-- @column to_ns BIGINT ns | End of the interval.
-- @column overlap_ns BIGINT ns | Time that operations before it had taken already: a fault of the trace, never counted twice.
-- @column doubled BOOLEAN | The same operation with the same times is there before it: its line was written twice.
WITH timed AS (
    SELECT
        run_id, rank, o.stage, o.step, o.seq, o.micro_batch, o.chunk, o.stream, o.op, o.kind, o.phase,
        aligned_ns(o.start_ns, k.offset_ns, k.drift, k.origin_ns) AS start_ns,
        aligned_ns(o.end_ns, k.offset_ns, k.drift, k.origin_ns) AS end_ns,
        CASE
            WHEN o.category IN ('compute', 'data') THEN o.category
            WHEN o.kind = 'recv' THEN 'p2p_recv'
            WHEN o.kind = 'send' THEN 'p2p_send'
            ELSE 'finalize'
        END AS part
    FROM ops AS o
    JOIN clock_offsets AS k USING (run_id, rank)
    WHERE o.start_ns IS NOT NULL AND o.end_ns IS NOT NULL
        AND o.kind IS NOT NULL
),
ordered AS (
    SELECT
        *,
        max(end_ns) OVER (timeline ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken_ns,
        least(greatest(start_ns, taken_ns), end_ns) AS from_ns,
        starts_with(part, 'p2p') AND starts_with(lag(part) OVER timeline, 'p2p')
            AND start_ns = lag(start_ns) OVER timeline AND end_ns = lag(end_ns) OVER timeline
            AS fused,
        end_ns > start_ns AND op = lag(op) OVER timeline AND step = lag(step) OVER timeline
            AND start_ns = lag(start_ns) OVER timeline AND end_ns = lag(end_ns) OVER timeline
            AND chunk IS NOT DISTINCT FROM lag(chunk) OVER timeline
            AND stream IS NOT DISTINCT FROM lag(stream) OVER timeline
            AS doubled
    FROM timed
    WINDOW timeline AS (
        -- What takes no time comes first, so that the two lines of a fused pair stay neighbours.
        PARTITION BY run_id, rank
        ORDER BY start_ns, end_ns > start_ns, part = 'p2p_send', end_ns, seq
    )
)
SELECT
    run_id, rank, stage, step, seq, micro_batch, chunk, op, kind, phase, part, start_ns, end_ns, from_ns,
    end_ns AS to_ns,
    CASE WHEN coalesce(fused, false) THEN 0 ELSE from_ns - start_ns END AS overlap_ns,
    coalesce(doubled, false) AS doubled
FROM ordered
