-- The best split of a run's layers into consecutive stages, none of them empty.
-- Best is the smallest largest stage, then the smallest second largest, and so on down; of equal
-- ones that whose early stages end first. Adding one stage to two splits does not change which is
-- better, so the best split of the first layers is the beginning of a best split of all.
-- @grain run_id, stage
-- @column first_position BIGINT | Position of the stage's first layer in _layer_order.
-- @column last_position BIGINT | Position of its last layer.
WITH RECURSIVE ordered AS (
    SELECT o.*, r.stages, r.listed, r.all_ns, max(o.layer_ns) OVER (PARTITION BY run_id) AS largest_ns
    FROM _layer_order AS o
    JOIN _layer_runs AS r USING (run_id)
    WHERE r.split_reason IS NULL
),
candidates AS (
    SELECT
        a.run_id,
        a.stages,
        a.listed,
        a.position AS first_position,
        b.position AS last_position,
        b.through_ns - a.through_ns + a.layer_ns AS load_ns
    FROM ordered AS a
    JOIN ordered AS b ON b.run_id = a.run_id AND b.position >= a.position
    -- Filling stages up to the mean gives a split without a larger stage than this.
    WHERE load_ns * a.stages <= a.all_ns + a.stages * a.largest_ns
),
beginnings AS (
    SELECT
        run_id,
        1 AS stages_used,
        last_position,
        {'loads': [load_ns], 'ends': [last_position]} AS best
    FROM candidates
    WHERE first_position = 1
    UNION ALL
    SELECT
        s.run_id,
        s.stages_used + 1,
        c.last_position,
        min({
            'loads': list_reverse_sort(list_append(s.best.loads, c.load_ns)),
            'ends': list_append(s.best.ends, c.last_position)
        })
    FROM beginnings AS s
    JOIN candidates AS c ON c.run_id = s.run_id AND c.first_position = s.last_position + 1
    -- Every stage to come needs a layer.
    WHERE s.stages_used < c.stages AND c.last_position <= c.listed - c.stages + s.stages_used + 1
    GROUP BY s.run_id, s.stages_used, c.last_position
),
ends AS (
    SELECT b.run_id, unnest(range(r.stages))::INTEGER AS stage, b.best.ends AS ends
    FROM beginnings AS b
    JOIN _layer_runs AS r USING (run_id)
    WHERE b.stages_used = r.stages AND b.last_position = r.listed
)
SELECT
    run_id,
    stage,
    coalesce(ends[stage], 0) + 1 AS first_position,
    ends[stage + 1] AS last_position
FROM ends
