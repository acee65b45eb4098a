-- In which order Megatron numbered the ranks of a run, judged by the stages that its lines print.
-- `tp-cp-dp-pp` is the usual one, `tp-cp-pp-dp` that of --use-tp-pp-dp-mapping. Where neither fits and
-- every rank was seen, the ranks of a stage count in order of their numbers.
-- @grain run_id
-- @column rank_order VARCHAR | tp-cp-dp-pp, tp-cp-pp-dp, printed, or NULL where the printed stages contradict every order.
WITH printed AS (
    -- What says nothing about the schedule may print another stage.
    SELECT DISTINCT run_id, rank, stage
    FROM ops
    WHERE stage IS NOT NULL AND kind IS NOT NULL
),
counted AS (
    SELECT
        p.*,
        r.world_size,
        ranks_per_stage(r.world_size, r.pp) AS stage_ranks,
        nullif(r.tp::BIGINT * coalesce(r.cp, 1), 0) AS model_ranks,
        r.pp,
        count(*) OVER (PARTITION BY p.run_id, p.stage) AS ranks_of_stage
    FROM printed AS p
    JOIN runs AS r USING (run_id)
),
fits AS (
    SELECT
        run_id,
        bool_and(stage = rank // stage_ranks) AS pp_last,
        bool_and(stage = rank // model_ranks % pp) AS dp_last,
        count(*) = count(DISTINCT rank) AND count(*) = any_value(world_size)
            AND bool_and(ranks_of_stage = stage_ranks) AS even
    FROM counted
    GROUP BY run_id
)
SELECT
    r.run_id,
    CASE
        WHEN coalesce(f.pp_last, true) THEN 'tp-cp-dp-pp'
        WHEN f.dp_last THEN 'tp-cp-pp-dp'
        WHEN f.even THEN 'printed'
    END AS rank_order
FROM runs AS r
LEFT JOIN fits AS f USING (run_id)
