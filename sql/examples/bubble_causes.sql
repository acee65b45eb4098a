-- Is the pipeline bubble above theory: by uneven stages, or by waiting?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- measured = theory + uneven + rest, as means over stages and steps without warm-up. `theory` needs
-- more micro-batches, `uneven` another split of the layers or a look at a slow rank; the `rest` is
-- messages, gaps and the end of the step, and is below 0 where only one rank of a stage is slow.
-- `twin_wait` is beside it: waiting for tensor-parallel peers inside operations.

WITH steps AS (
    SELECT
        m.run_id,
        m.step,
        avg(m.bubble_ratio) AS measured,
        avg(m.theory_bubble_ratio) AS theory,
        avg(t.bubble_ratio) AS modelled
    FROM stage_bubbles AS m
    LEFT JOIN stage_bubbles AS t
        ON t.basis = 'modelled' AND (t.run_id, t.step, t.stage) = (m.run_id, m.step, m.stage)
    WHERE m.basis = 'measured' AND m.bubble_ratio IS NOT NULL
    GROUP BY m.run_id, m.step
),
waits AS (
    SELECT run_id, step, avg(bubble_with_wait_ratio - bubble_ratio) AS twin_wait
    FROM rank_bubbles
    GROUP BY run_id, step
)
SELECT
    b.run_id,
    count(*) AS steps,
    avg(b.measured) AS measured,
    avg(b.theory) AS theory,
    avg(b.modelled - b.theory)::DECIMAL(9, 6) AS uneven,
    avg(b.measured - b.modelled)::DECIMAL(9, 6) AS rest,
    avg(w.twin_wait) AS twin_wait
FROM steps AS b
JOIN step_stats AS s USING (run_id, step)
LEFT JOIN waits AS w USING (run_id, step)
WHERE NOT s.warmup AND contains(b.run_id, $run)
GROUP BY b.run_id
ORDER BY b.run_id
