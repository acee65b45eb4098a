-- Which runs can be replayed, and why others cannot.
-- @grain run_id
-- @column streams BOOLEAN | The ranks have several streams.
-- @column reason VARCHAR | Why the run cannot be replayed; NULL where it can.
WITH traced AS (
    SELECT run_id, count(DISTINCT step) AS steps
    FROM _op_intervals
    GROUP BY run_id
),
chunked AS (
    SELECT run_id, count(chunk) > 0 AS chunks, count(stream) > 0 AS streams,
        bool_or(stream NOT IN (
            'compute', 'forward_send', 'forward_recv', 'backward_send', 'backward_recv', 'dp', 'end'
        )) AS unknown
    FROM ops
    GROUP BY run_id
),
usable AS (
    SELECT
        s.run_id,
        count(*) FILTER (NOT s.warmup OR coalesce(k.streams, false)) AS steps,
        bool_and(coalesce(c.aligned, false)) AS aligned,
        bool_or(lost_in_clocks(c.uncertainty_ns, s.step_ms * 1e6)) AS lost
    FROM step_stats AS s
    JOIN _step_clocks AS c USING (run_id, step)
    LEFT JOIN chunked AS k USING (run_id)
    GROUP BY s.run_id
),
-- Where ranks have several streams, all ranks of a stage do the same in every step, and all partners are there.
sizes AS (
    SELECT run_id, stage, count(*) AS ops, max(stage) OVER (PARTITION BY run_id) + 1 AS stages
    FROM _whatif_template
    GROUP BY run_id, stage
),
counted AS (
    SELECT
        run_id, stage, rank, step,
        count(*) AS ops, bool_and(known) AS known
    FROM _whatif_streams
    GROUP BY ALL
),
lacking AS (
    SELECT run_id
    FROM counted AS c
    JOIN sizes AS s USING (run_id, stage)
    GROUP BY run_id
    HAVING NOT bool_and(c.known AND c.ops = s.ops)
        OR count(*) < count(DISTINCT rank) * count(DISTINCT step)
        OR count(DISTINCT stage) < any_value(s.stages)
        OR count(DISTINCT rank) % any_value(s.stages) <> 0
    UNION
    SELECT DISTINCT t.run_id
    FROM _whatif_template AS t
    JOIN sizes AS s USING (run_id, stage)
    WHERE t.members <> CASE
            WHEN t.direction IS NOT NULL THEN 2
            WHEN t.op = 'ep_allreduce' THEN least(2, s.stages)
            WHEN t.op = 'optimizer_clip' THEN s.stages
            ELSE 1
        END
),
unseen AS (
    SELECT DISTINCT m.run_id
    FROM _comm_matches AS m
    JOIN _op_intervals AS o USING (run_id, rank, seq)
    JOIN chunked AS k USING (run_id)
    WHERE NOT m.matched AND m.group_size IS DISTINCT FROM 1 AND NOT k.streams
    UNION
    SELECT run_id FROM lacking
)
SELECT
    t.run_id,
    coalesce(c.streams, false) AS streams,
    CASE
        WHEN r.simulated THEN 'simulated'
        WHEN r.complete IS NULL OR r.world_size IS NULL THEN 'world_size_unknown'
        WHEN NOT r.complete THEN 'run_incomplete'
        WHEN r.vpp > 1 AND NOT coalesce(c.chunks, false) THEN 'interleaved_schedule'
        WHEN coalesce(c.unknown, false) THEN 'unknown_operation'
        WHEN t.run_id IN (SELECT run_id FROM _shifted_steps) THEN 'step_shifted'
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
