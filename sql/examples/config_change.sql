-- Did a change of configuration make steps slower?
-- @topic fleet
-- @param since TIMESTAMP = NULL | Runs dated from then on; every run by default.
-- Configurations of a model on as many ranks, in the order of first use; `changed` is what one has
-- and the one before had not; one that also ran in between is another job and none before. Where the
-- batch changed, compare samples per second, not step times. Undated runs and copies are left out.

WITH measured AS (
    SELECT
        r.format,
        r.model,
        r.layers,
        r.world_size,
        h.config,
        r.run_date,
        s.step_p50_ms,
        coalesce(r.global_batch_size, r.micro_batches * r.micro_batch_size * r.dp) AS samples
    FROM runs AS r
    JOIN run_summary AS s USING (run_id)
    JOIN run_history AS h USING (run_id)
    WHERE
        h.config IS NOT NULL AND s.step_p50_ms IS NOT NULL
        AND r.run_date >= coalesce($since::TIMESTAMP, '-infinity')
        AND h.reason IS DISTINCT FROM 'duplicate'
),
configs AS (
    SELECT
        format,
        model,
        layers,
        world_size,
        config,
        count(*) AS runs,
        min(run_date) AS first_run,
        max(run_date) AS last_run,
        median(step_p50_ms) AS step_ms,
        median(1000.0 * samples / step_p50_ms) AS samples_per_s
    FROM measured
    GROUP BY ALL
),
earlier AS (
    SELECT c.config, m.config AS before, max(m.run_date) FILTER (m.run_date < c.first_run) AS last_run
    FROM configs AS c
    JOIN measured AS m
        ON m.format = c.format AND m.model IS NOT DISTINCT FROM c.model
        AND m.layers IS NOT DISTINCT FROM c.layers
        AND m.world_size IS NOT DISTINCT FROM c.world_size AND m.config <> c.config
    GROUP BY c.config, m.config
    HAVING NOT bool_or(m.run_date BETWEEN c.first_run AND c.last_run)
),
ordered AS (
    SELECT c.*, b.config AS before, b.step_ms AS step_before_ms
    FROM configs AS c
    LEFT JOIN (
        SELECT config, arg_max(before, (last_run, before)) AS before FROM earlier
        WHERE last_run IS NOT NULL GROUP BY config
    ) AS e ON e.config = c.config
    LEFT JOIN configs AS b ON b.config = e.before
)
SELECT
    format,
    model,
    world_size,
    first_run,
    runs,
    step_ms,
    step_ms / step_before_ms - 1 AS step_change_ratio,
    samples_per_s,
    CASE
        WHEN before IS NOT NULL
            THEN list_filter(
                string_split(config, ' '),
                lambda word: NOT list_contains(string_split(before, ' '), word)
            )
    END AS changed
FROM ordered
ORDER BY format, model, layers, world_size, first_run, config
