-- Which runs can be replayed, and why others cannot.
-- @internal
-- @grain run_id
-- @column streams BOOLEAN | The ranks have several streams.
-- @column reason VARCHAR | Why the run cannot be replayed; NULL where it can.
WITH traced AS (
    SELECT run_id, count(DISTINCT step) AS steps
    FROM _op_intervals
    GROUP BY run_id
),
usable AS (
    SELECT
        s.run_id,
        count(*) FILTER (NOT s.warmup) AS steps,
        bool_and(coalesce(c.aligned, false)) AS aligned,
        bool_or(lost_in_clocks(c.uncertainty_ns, s.step_ms * 1e6)) AS lost
    FROM step_stats AS s
    JOIN _step_clocks AS c USING (run_id, step)
    GROUP BY s.run_id
),
unseen AS (
    SELECT DISTINCT m.run_id
    FROM _comm_matches AS m
    JOIN _op_intervals AS o USING (run_id, rank, seq)
    WHERE NOT m.matched AND m.group_size IS DISTINCT FROM 1
),
chunked AS (
    SELECT run_id, count(chunk) > 0 AS chunks, count(stream) > 0 AS streams
    FROM ops
    GROUP BY run_id
),
shifted AS (
    SELECT DISTINCT run_id FROM _shifted_steps
)
SELECT
    t.run_id,
    coalesce(c.streams, false) AS streams,
    CASE
        WHEN r.simulated THEN 'simulated'
        WHEN r.complete IS NULL THEN 'world_size_unknown'
        WHEN NOT r.complete THEN 'run_incomplete'
        WHEN r.vpp > 1 AND NOT coalesce(c.chunks, false) THEN 'interleaved_schedule'
        WHEN d.run_id IS NOT NULL THEN 'step_shifted'
        WHEN u.run_id IS NOT NULL THEN 'peer_not_seen'
        WHEN coalesce(s.steps, 0) = 0 THEN 'warmup_only'
        WHEN NOT s.aligned THEN 'clocks_not_aligned'
        WHEN s.lost THEN 'below_clock_uncertainty'
    END AS reason
FROM traced AS t
JOIN runs AS r USING (run_id)
LEFT JOIN chunked AS c USING (run_id)
LEFT JOIN usable AS s USING (run_id)
LEFT JOIN unseen AS u USING (run_id)
LEFT JOIN shifted AS d USING (run_id)
