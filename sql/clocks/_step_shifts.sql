-- Steps of a rank that ran beside another step of a rank on the same clock: whole steps are missing before them.
-- The passes of a step, from the first forward to the last backward step, overlap on all ranks, and
-- those of different steps never do. The rank with the most steps counts right, of equal ones the one
-- that began first. Of a rank with fewer all steps must have run beside some: else its clock differs.
-- @grain run_id, rank, step
-- @column other_rank INTEGER | Rank that counts right.
-- @column first_beside INTEGER | First step of that rank that this one ran beside.
-- @column last_beside INTEGER | Last of them: a step that was not ended holds several.
WITH spans AS (
    SELECT
        s.run_id, s.rank, s.step,
        s.passes_start_ns AS start_ns,
        s.passes_end_ns AS end_ns,
        -- A run that names no host is taken to have one.
        CASE WHEN max(p.host) OVER run IS NULL THEN '*' ELSE p.host END AS clock,
        count(*) OVER each_rank AS steps,
        min(start_ns) OVER each_rank AS first_ns
    FROM _rank_spans AS s
    JOIN _rank_places AS p USING (run_id, rank)
    JOIN runs AS r USING (run_id)
    WHERE s.passes_end_ns IS NOT NULL AND NOT coalesce(r.simulated, false)
    WINDOW run AS (PARTITION BY s.run_id), each_rank AS (PARTITION BY s.run_id, s.rank)
),
counted AS (
    SELECT
        *,
        max(steps) OVER one_clock AS most_steps,
        first_value(rank) OVER (one_clock ORDER BY steps DESC, first_ns, rank) AS other_rank
    FROM spans
    WHERE clock IS NOT NULL
    WINDOW one_clock AS (PARTITION BY run_id, clock)
),
others AS (SELECT * FROM counted WHERE rank = other_rank),
fewer AS (SELECT * FROM counted WHERE steps < most_steps),
met AS (
    -- At either end a step counts if they share more than half of the shorter one.
    SELECT
        c.run_id, c.rank, c.step, c.other_rank,
        CASE WHEN 2::HUGEINT * (least(c.end_ns, f.end_ns) - greatest(c.start_ns, f.start_ns))
                > least(c.end_ns - c.start_ns, f.end_ns - f.start_ns)
            THEN f.step ELSE f.step + 1
        END AS first_beside,
        CASE WHEN 2::HUGEINT * (least(c.end_ns, l.end_ns) - greatest(c.start_ns, l.start_ns))
                > least(c.end_ns - c.start_ns, l.end_ns - l.start_ns)
            THEN l.step ELSE l.step - 1
        END AS last_beside
    FROM fewer AS c
    ASOF LEFT JOIN others AS f
        ON f.run_id = c.run_id AND f.rank = c.other_rank AND c.start_ns < f.end_ns
    ASOF LEFT JOIN others AS l
        ON l.run_id = c.run_id AND l.rank = c.other_rank AND c.end_ns > l.start_ns
)
SELECT *
FROM met
QUALIFY (first_beside <> step OR last_beside <> step)
    AND bool_and(coalesce(first_beside <= last_beside, false)) OVER (PARTITION BY run_id, rank)
