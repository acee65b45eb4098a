-- What makes a run slower than equal peers would, or why stages of equal peers are uneven.
-- Ragged data: forward and backward of a micro-batch are long together, on all stages that it passes.
-- @grain run_id
-- @column cause VARCHAR | As in whatif_runs.
WITH uneven AS (
    SELECT run_id
    FROM _whatif_judged
    WHERE NOT abstains AND NOT coalesce(t_ms < 1.03 * peer_ms, false)
),
passes AS (
    -- One number to sort and join by: the keys themselves take twice as long.
    SELECT *, hash(run_id, rank, seq) AS pass
    FROM _whatif_operations
    SEMI JOIN uneven USING (run_id)
    WHERE direction IS NOT NULL
),
-- Time of a pass in the calls inside it, as the kernel cuts it.
called AS (
    SELECT pass, sum(greatest(0, least(to_ns, finish_ns) - least(to_ns, begin_ns))) AS call_ns
    FROM (
        SELECT
            p.pass, p.to_ns, c.finish_ns,
            greatest(p.from_ns, c.begin_ns, max(c.finish_ns) OVER (
                PARTITION BY p.pass ORDER BY c.sub ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )) AS begin_ns
        FROM passes AS p
        JOIN _comm_matches AS c USING (run_id, rank, seq)
        WHERE c.sub > 0 AND replayed(c.matched, c.group_size, c.begin_ns, c.finish_ns)
    ) AS clipped
    GROUP BY pass
),
owned AS (
    SELECT
        p.run_id, p.step, p.rank, p.micro_batch, p.direction AS kind,
        any_value(p.stage) AS stage,
        sum(p.to_ns - coalesce(m.from_ns, p.from_ns) - coalesce(c.call_ns, 0)) AS own_ns
    FROM passes AS p
    LEFT JOIN called AS c USING (pass)
    LEFT JOIN _whatif_messages AS m USING (run_id, rank, seq)
    GROUP BY ALL
),
-- Ranks at the same place of their stages work on the same data.
relative AS (
    SELECT
        *,
        dense_rank() OVER (PARTITION BY run_id, stage ORDER BY rank) AS place,
        ratio(own_ns, quantile_cont(own_ns, 0.5) OVER (PARTITION BY run_id, rank, kind)) AS share
    FROM owned
),
batches AS (
    SELECT
        run_id, step, place, rank, micro_batch,
        max(share) FILTER (kind = 'forward') AS forward,
        max(share) FILTER (kind = 'backward') AS backward,
        avg(max(share) FILTER (kind = 'forward')) OVER (
            PARTITION BY run_id, step, place, micro_batch
        ) AS all_forward
    FROM relative
    GROUP BY run_id, step, place, rank, micro_batch
),
ragged AS (
    SELECT run_id
    FROM batches
    GROUP BY run_id
    HAVING corr(forward, backward) >= 0.95 AND corr(forward, all_forward) >= 0.95
        AND stddev_samp(forward) / avg(forward) >= 0.1
),
largest AS (
    SELECT
        run_id,
        max(slowdown_ratio) FILTER (scenario = 'rank') AS rank_ratio,
        CASE WHEN count(*) FILTER (scenario = 'stage') > 1
            THEN max(slowdown_ratio) FILTER (scenario = 'stage')
        END AS stage_ratio,
        max(slowdown_ratio) FILTER (scenario = 'kind' AND starts_with(subject, 'send_recv')) AS link_ratio,
        max(slowdown_ratio) FILTER (scenario = 'kind') AS kind_ratio
    FROM _whatif_subjects
    GROUP BY run_id
)
SELECT
    j.run_id,
    CASE
        WHEN j.abstains THEN NULL
        WHEN j.t_ms < 1.03 * j.peer_ms AND j.peer_ms >= 1.05 * j.balanced_ms THEN 'stage_split'
        WHEN j.t_ms < 1.03 * j.peer_ms THEN 'none'
        WHEN r.run_id IS NOT NULL THEN 'data'
        WHEN l.rank_ratio - 1 >= 0.5 * (j.t_ms / j.peer_ms - 1) THEN 'one_rank'
        WHEN l.stage_ratio - 1 >= 0.5 * (j.t_ms / j.peer_ms - 1) THEN 'one_stage'
        WHEN l.link_ratio - 1 >= 0.5 * (j.t_ms / j.peer_ms - 1) THEN 'link'
        WHEN l.kind_ratio - 1 >= 0.5 * (j.t_ms / j.peer_ms - 1) THEN 'one_kind'
        ELSE 'unclear'
    END AS cause
FROM _whatif_judged AS j
LEFT JOIN ragged AS r USING (run_id)
LEFT JOIN largest AS l USING (run_id)
