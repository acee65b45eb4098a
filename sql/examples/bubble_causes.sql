-- Is the pipeline bubble above theory: by uneven stages, or by waiting?
-- @topic pipeline
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- measured = theory + uneven + rest, as means over stages and steps without warm-up. `theory` needs
-- more micro-batches, `uneven` another split of the layers or a look at a slow rank; the `rest` is
-- messages, gaps and the end of the step, and is below 0 where only one rank of a stage is slow.
-- `twin_wait` is beside it: waiting for tensor-parallel peers inside operations.

WITH waits AS (
    SELECT run_id, avg(bubble_with_wait_ratio - bubble_ratio) AS twin_wait
    FROM rank_summary
    GROUP BY run_id
)
SELECT
    s.run_id,
    max(s.steps) AS steps,
    avg(s.bubble_ratio) AS measured,
    avg(s.theory_bubble_ratio) AS theory,
    avg(s.modelled_bubble_ratio - s.theory_bubble_ratio)::DECIMAL(9, 6) AS uneven,
    avg(s.bubble_ratio - s.modelled_bubble_ratio)::DECIMAL(9, 6) AS rest,
    any_value(w.twin_wait) AS twin_wait
FROM stage_summary AS s
LEFT JOIN waits AS w USING (run_id)
WHERE s.basis = 'measured' AND s.bubble_ratio IS NOT NULL AND contains(s.run_id, $run)
GROUP BY s.run_id
ORDER BY s.run_id
