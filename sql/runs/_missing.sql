-- Ranks and stages of a run that its topology promises and no file shows.
-- @grain run_id
-- @column missing_ranks INTEGER[] | Ranks of a traced job without a record; NULL where the job's size is unknown or cannot be.
-- @column missing_stages INTEGER[] | Pipeline stages without a rank that was seen; NULL where their number is unknown or cannot be.
WITH seen AS (
    SELECT
        run_id,
        list(rank) AS ranks,
        list(DISTINCT stage) FILTER (stage IS NOT NULL) AS stages,
        bool_or(traced) AS traced
    FROM _ranks_seen
    GROUP BY run_id
)
SELECT
    run_id,
    s.traced,
    CASE WHEN s.traced AND listable(r.world_size, len(s.ranks))
        THEN list_filter(range(r.world_size), lambda x: NOT list_contains(s.ranks, x::INTEGER))::INTEGER[]
    END AS missing_ranks,
    CASE WHEN listable(r.pp, len(s.stages))
        THEN list_filter(range(r.pp), lambda x: NOT coalesce(list_contains(s.stages, x::INTEGER), false))::INTEGER[]
    END AS missing_stages
FROM seen AS s
JOIN runs AS r USING (run_id)
