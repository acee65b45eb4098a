-- What contradicts the sizes of a job: each other, or lines of its log that print others.
-- @grain run_id, sentence
-- @column kind VARCHAR | sizes or changed, as in _contradictions.
-- @column sentence VARCHAR | What is seen; begins with its subject.
SELECT
    run_id, 'sizes' AS kind,
    format(
        'sizes: world_size {} is no multiple of {}', world_size,
        concat_ws(' x ', 'tp ' || tp, 'cp ' || cp, 'dp ' || dp, 'pp ' || pp)
    ) AS sentence
FROM runs
WHERE world_size % (coalesce(tp, 1)::HUGEINT * coalesce(pp, 1) * coalesce(cp, 1) * coalesce(dp, 1)) <> 0
UNION ALL
SELECT
    f.run_id, 'changed',
    format(
        'sizes: records from line {} of {} on are of other sizes than those before ({})',
        f.line, concat_ws('/', s.path, s.member), f.text
    )
FROM faults AS f
JOIN sources AS s USING (run_id, source_id)
WHERE f.name = 'sizes_changed'
