-- What the device of a rank did in a step, from the end of the step before to the end of its last kernel.
-- The first step of a trace, and one that does not follow another, begins with its first kernel. A kernel that runs
-- into another step counts there for that time.
-- The parts add up to that time exactly: what several streams do at once counts once, first as
-- compute, then as communication, then as copies.
-- @grain run_id, step, rank
-- @column window_ms DOUBLE ms | From the latest end of the step before, else from the first kernel or copy, to the latest end.
-- @column compute_ms DOUBLE ms | Some kernel computes.
-- @column exposed_comm_ms DOUBLE ms | A kernel of a communication runs and none computes: it includes waiting for other ranks.
-- @column exposed_copy_ms DOUBLE ms | Memory is copied or filled and nothing else runs.
-- @column idle_ms DOUBLE ms | Nothing runs on the device.
-- @column idle_ratio DOUBLE | Idle over window.
-- @column comm_ms DOUBLE ms | Kernels of communications, what is hidden behind compute too.
-- @column hidden_comm_ratio DOUBLE | Part of comm_ms that runs beside compute; NULL without communication.
-- @column kernels BIGINT calls | Kernels and copies.
WITH work AS (
    SELECT
        o.run_id, o.step, o.rank, o.stage, o.seq, o.start_ns, o.end_ns,
        CASE
            WHEN c.seq IS NOT NULL THEN 'comm'
            WHEN o.category = 'compute' THEN 'compute'
            ELSE 'copy'
        END AS kind
    FROM ops AS o
    SEMI JOIN _kernel_runs AS k USING (run_id)
    LEFT JOIN (SELECT DISTINCT run_id, rank, seq FROM comms) AS c USING (run_id, rank, seq)
),
steps AS (
    SELECT
        *,
        lag(step) OVER steps = step - 1 AS follows,
        max(end_ns) OVER (steps ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
    FROM (
        SELECT
            run_id, rank, step,
            min(stage) AS stage, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS kernels
        FROM work
        GROUP BY run_id, rank, step
    )
    WINDOW steps AS (PARTITION BY run_id, rank ORDER BY step)
),
windows AS (
    SELECT
        run_id, rank, step, stage, kernels,
        CASE WHEN follows THEN before_ns ELSE greatest(start_ns, coalesce(before_ns, start_ns)) END AS from_ns,
        greatest(end_ns, from_ns) AS to_ns,
        to_ns - from_ns AS window_ns
    FROM steps
),
placed AS (
    SELECT o.*, w.from_ns
    FROM work AS o
    JOIN windows AS w USING (run_id, rank, step)
),
cut AS (
    SELECT run_id, rank, step, seq, kind, greatest(start_ns, from_ns) AS start_ns, end_ns
    FROM placed
    UNION ALL
    SELECT o.run_id, o.rank, w.step, o.seq, o.kind, greatest(o.start_ns, w.from_ns), least(o.end_ns, w.to_ns)
    FROM placed AS o
    JOIN windows AS w ON w.run_id = o.run_id AND w.rank = o.rank
        AND w.step < o.step AND o.start_ns < w.to_ns AND o.end_ns > w.from_ns
    WHERE o.start_ns < o.from_ns
),
-- Where the intervals before each have covered the time up to: any, kernels, and those of a kind.
covered AS (
    SELECT
        run_id, step, rank, kind, start_ns, end_ns,
        max(end_ns) OVER before AS any_ns,
        max(CASE WHEN kind <> 'copy' THEN end_ns END) OVER before AS kernel_ns,
        max(CASE WHEN kind = 'compute' THEN end_ns END) OVER before AS compute_ns,
        max(CASE WHEN kind = 'comm' THEN end_ns END) OVER before AS comm_ns
    FROM cut
    WINDOW before AS (
        PARTITION BY run_id, step, rank ORDER BY start_ns, seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
pieces AS (
    SELECT
        run_id, step, rank, kind,
        greatest(0, end_ns - greatest(start_ns, any_ns)) AS any_ns,
        greatest(0, end_ns - greatest(start_ns, kernel_ns)) AS kernel_ns,
        greatest(0, end_ns - greatest(start_ns, CASE kind WHEN 'comm' THEN comm_ns ELSE compute_ns END)) AS kind_ns
    FROM covered
),
sums AS (
    SELECT
        run_id, step, rank,
        coalesce(sum(kind_ns) FILTER (kind = 'compute'), 0)::HUGEINT AS compute_ns,
        coalesce(sum(kind_ns) FILTER (kind = 'comm'), 0)::HUGEINT AS comm_ns,
        coalesce(sum(kernel_ns) FILTER (kind <> 'copy'), 0)::HUGEINT AS kernel_ns,
        sum(any_ns)::HUGEINT AS busy_ns
    FROM pieces
    GROUP BY run_id, step, rank
)
SELECT
    run_id,
    step,
    rank,
    stage,
    ns_to_ms(window_ns) AS window_ms,
    ns_to_ms(compute_ns) AS compute_ms,
    ns_to_ms(kernel_ns - compute_ns) AS exposed_comm_ms,
    ns_to_ms(busy_ns - kernel_ns) AS exposed_copy_ms,
    ns_to_ms(window_ns - busy_ns) AS idle_ms,
    ratio(window_ns - busy_ns, window_ns) AS idle_ratio,
    ns_to_ms(comm_ns) AS comm_ms,
    1 - ratio(kernel_ns - compute_ns, comm_ns) AS hidden_comm_ratio,
    kernels,
    CASE WHEN window_ns = 0 THEN 'below_clock_resolution' END AS reason
FROM windows
JOIN sums USING (run_id, rank, step)
