-- Ranks and stages that a run lacks, in words: `ranks 3, 5-7`, `stage 2 (ranks 4-5)`.
-- Neighbours are one range; after the first eight ranges it says how many are left.
-- @grain run_id, gap
-- @column gap VARCHAR | ranks: without a record; peers: those of them in stages that were seen; stages: without a rank; cut: ranks that lack the end of the first step that some rank did not finish; torn: ranks that lack lines in the middle of the first such step; absent: ranks without the first step that some rank lacks after its own first one; shifted: ranks whose steps ran beside other steps.
-- @column told VARCHAR | Which they are.
-- @column step INTEGER | The step of cut, torn and absent, or the first shifted one.
WITH cut AS (
    SELECT s.run_id, s.step, s.rank, CASE WHEN e.ended THEN 'torn' ELSE 'cut' END AS gap
    FROM (
        -- A trace of kernels has neither passes nor optimizers.
        SELECT *, max(passes) OVER (PARTITION BY run_id) > 0 AS has_passes
        FROM _rank_steps
    ) AS s
    JOIN (
        SELECT *, bool_or(ended) OVER (PARTITION BY run_id) AS ends_are_traced
        FROM _rank_spans
    ) AS e USING (run_id, step, rank)
    ANTI JOIN _shifted_steps AS d USING (run_id, step)
    WHERE (NOT s.finished AND (s.has_passes OR e.ended)) OR (e.ends_are_traced AND NOT e.ended)
    QUALIFY s.step = min(s.step) OVER (PARTITION BY s.run_id, gap)
),
absent AS (
    SELECT r.run_id, r.rank, k.step
    FROM (SELECT run_id, rank, min(step) AS first_step FROM _rank_spans GROUP BY run_id, rank) AS r
    JOIN (SELECT DISTINCT run_id, step FROM _rank_spans) AS k
        ON k.run_id = r.run_id AND k.step > r.first_step
    ANTI JOIN _rank_spans AS s ON s.run_id = r.run_id AND s.rank = r.rank AND s.step = k.step
    QUALIFY k.step = min(k.step) OVER (PARTITION BY r.run_id)
),
missing AS (
    SELECT run_id, traced, missing_stages, unnest(missing_ranks) AS rank
    FROM _missing
),
lacking AS (
    SELECT run_id, 'ranks' AS gap, rank AS number, NULL::INTEGER AS step FROM missing
    UNION ALL
    SELECT m.run_id, 'peers', m.rank, NULL
    FROM missing AS m
    JOIN runs AS r USING (run_id)
    JOIN _rank_orders AS o USING (run_id)
    WHERE NOT list_contains(
        m.missing_stages,
        CASE o.rank_order
            WHEN 'tp-cp-dp-pp' THEN m.rank // ranks_per_stage(r.world_size, r.pp)
            WHEN 'tp-cp-pp-dp' THEN m.rank // (r.tp::BIGINT * coalesce(r.cp, 1)) % r.pp
        END
    )
    UNION ALL
    SELECT run_id, 'stages', unnest(missing_stages), NULL FROM _missing
    UNION ALL
    SELECT run_id, gap, rank, step FROM cut
    UNION ALL
    SELECT run_id, 'absent', rank, step FROM absent
    UNION ALL
    SELECT run_id, 'shifted', rank, min(step) FROM _step_shifts GROUP BY run_id, rank
),
numbered AS (
    SELECT *, number - row_number() OVER (PARTITION BY run_id, gap ORDER BY number) AS block
    FROM lacking
),
blocks AS (
    SELECT
        run_id,
        gap,
        min(number) AS first,
        max(number) AS last,
        count(*) AS size,
        min(step) AS step,
        row_number() OVER (PARTITION BY run_id, gap ORDER BY min(number)) AS place
    FROM numbered
    GROUP BY run_id, gap, block
),
worded AS (
    SELECT
        b.*,
        concat_ws('-', b.first, nullif(b.last, b.first)) AS range_told,
        ranks_per_stage(r.world_size, r.pp)::BIGINT AS stage_ranks,
        CASE WHEN b.gap = 'stages' AND m.traced AND r.world_size >= r.pp
            AND o.rank_order = 'tp-cp-dp-pp' THEN concat(
            CASE b.size * stage_ranks WHEN 1 THEN ' (rank ' ELSE ' (ranks ' END,
            concat_ws('-', b.first * stage_ranks, nullif((b.last + 1) * stage_ranks - 1, b.first * stage_ranks)),
            ')'
        ) ELSE '' END AS ranks_told
    FROM blocks AS b
    JOIN runs AS r USING (run_id)
    JOIN _missing AS m USING (run_id)
    JOIN _rank_orders AS o USING (run_id)
)
SELECT
    run_id,
    gap,
    concat(
        CASE WHEN gap = 'stages' THEN 'stage' ELSE 'rank' END,
        CASE WHEN sum(size) > 1 THEN 's' ELSE '' END,
        ' ',
        string_agg(range_told || ranks_told, ', ' ORDER BY first) FILTER (place <= 8),
        ' and ' || (sum(size) FILTER (place > 8))::VARCHAR || ' more'
    ) AS told,
    min(step) AS step
FROM worded
GROUP BY run_id, gap
