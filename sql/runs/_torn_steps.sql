-- Lines that a step of a rank lacks or has twice: sentences that begin with their subject.
-- @grain run_id, sentence
-- @column kind VARCHAR | lost or doubled.
-- @column sentence VARCHAR | What is seen.
WITH passes AS (
    SELECT s.*, bool_or(s.finished) OVER (PARTITION BY s.run_id, s.rank) AS finishes
    FROM _rank_steps AS s
    JOIN runs AS r USING (run_id)
    ANTI JOIN _shifted_steps AS d USING (run_id, step)
    WHERE NOT coalesce(r.simulated, false)
),
torn AS (
    -- A step that has its end lacks lines in its middle; a rank that never finishes one traces no passes.
    SELECT
        p.run_id, p.rank, p.step, p.passes,
        unnest([
            {'pass': 'forward', 'lacking': p.passes - p.forwards},
            {'pass': 'backward', 'lacking': p.passes - p.backwards}
        ]) AS one
    FROM passes AS p
    JOIN _rank_spans AS e USING (run_id, step, rank)
    WHERE e.ended AND p.finishes AND NOT p.finished
)
SELECT
    run_id, 'lost' AS kind, rank,
    format(
        'lost lines of rank {}: step {} lacks {}', rank, step,
        string_agg(format('{} of {} {} steps', one.lacking, passes, one.pass), ' and ' ORDER BY one.pass)
    ) AS sentence
FROM torn
WHERE one.lacking > 0
GROUP BY run_id, rank, step, passes
UNION ALL
SELECT
    run_id, 'doubled', rank,
    concat(
        format(
            'doubled lines of rank {}: step {} has {} again in line {}',
            rank, step, doubled_op, doubled_line
        ),
        CASE WHEN doubled > 1 THEN format(' and {} more', doubled - 1) ELSE '' END
    )
FROM passes
WHERE doubled > 0
