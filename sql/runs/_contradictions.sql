-- What in a run contradicts what its ranks were taken for, its sizes, or each other: sentences that begin with their subject.
-- @grain run_id, sentence
-- @column kind VARCHAR | sizes: those of the job; changed: sizes that a log prints anew; stages: printed stages; steps: numbers of steps; clocks: times of one host; lost, doubled: lines of a step.
-- @column rank INTEGER | Rank that it is about; NULL where it is about a stage or the job.
WITH undecided AS (
    SELECT r.run_id, ranks_per_stage(r.world_size, r.pp) AS stage_ranks, r.world_size
    FROM runs AS r
    JOIN _rank_orders AS o USING (run_id)
    WHERE o.rank_order IS NULL
),
printed AS (
    SELECT DISTINCT o.run_id, o.rank, o.stage, u.stage_ranks
    FROM ops AS o
    JOIN undecided AS u USING (run_id)
    WHERE o.stage IS NOT NULL AND o.kind IS NOT NULL
),
several AS (
    SELECT
        run_id, rank,
        format('rank {}: prints stages {}', rank, string_agg(stage, ', ' ORDER BY stage)) AS sentence
    FROM printed
    GROUP BY run_id, rank
    HAVING count(*) > 1
),
uneven AS (
    SELECT
        run_id, NULL::INTEGER AS rank,
        format(
            'stage {}: {} ranks print it, world_size / pp is {}', stage, count(*), any_value(stage_ranks)
        ) AS sentence
    FROM printed
    GROUP BY run_id, stage
    HAVING count(*) > any_value(stage_ranks)
),
stages AS (
    SELECT * FROM several
    UNION ALL
    SELECT * FROM uneven
    UNION ALL
    SELECT u.run_id, NULL, format(
        'stages: those of {} of {} ranks fit no order of the ranks',
        (SELECT count(DISTINCT p.rank) FROM printed AS p WHERE p.run_id = u.run_id), u.world_size
    )
    FROM undecided AS u
    ANTI JOIN (SELECT run_id FROM several UNION SELECT run_id FROM uneven) AS named USING (run_id)
),
counts AS (
    SELECT
        s.run_id, s.rank, c.clock,
        count(*) AS steps,
        bool_and(s.ended) AS ended,
        first_value(c.clock) OVER (PARTITION BY s.run_id ORDER BY s.rank) AS reference
    FROM _rank_spans AS s
    JOIN _rank_clocks AS c USING (run_id, rank)
    JOIN runs AS r USING (run_id)
    WHERE NOT coalesce(r.simulated, false)
    GROUP BY s.run_id, s.rank, c.clock
),
shifted AS (
    SELECT
        run_id, rank,
        format(
            'rank {}: its step {} ran beside step{} of rank {}',
            rank,
            min(step),
            arg_min(
                CASE WHEN last_beside > first_beside
                    THEN format('s {}-{}', first_beside, last_beside)
                    ELSE format(' {}', first_beside)
                END, step
            ),
            any_value(other_rank)
        ) AS sentence
    FROM _step_shifts
    GROUP BY run_id, rank
),
behind AS (
    -- Between two clocks nothing tells which steps are lost, unless each rank has records of its own.
    SELECT
        c.run_id, c.rank,
        format(
            'rank {}: has fewer steps than rank {} ({} of {}), and on another clock nothing tells which',
            c.rank, m.rank, c.steps, m.steps
        ) AS sentence
    FROM counts AS c
    JOIN (
        SELECT * FROM counts
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY steps DESC, rank) = 1
    ) AS m USING (run_id)
    WHERE c.steps < m.steps AND c.clock <> m.clock
        -- A trace that is cut within a step says itself where it ends.
        AND (c.ended OR NOT m.ended)
        AND c.run_id NOT IN (SELECT run_id FROM train_steps WHERE rank IS NOT NULL)
),
clocks AS (
    SELECT
        run_id, rank,
        format(
            'rank {}: its times cannot be read from the clock of {}, and no host is named',
            rank, reference
        ) AS sentence
    FROM counts
    WHERE clock = concat('rank ', rank) AND clock <> reference AND starts_with(reference, 'rank ')
)
SELECT run_id, kind, NULL::INTEGER AS rank, sentence FROM _size_contradictions
UNION ALL
SELECT run_id, 'stages', rank, sentence FROM stages
UNION ALL
SELECT run_id, 'steps', rank, sentence FROM shifted
UNION ALL
SELECT run_id, 'steps', rank, sentence FROM behind
UNION ALL
SELECT run_id, 'clocks', rank, sentence FROM clocks
UNION ALL
SELECT run_id, kind, rank, sentence FROM _torn_steps
