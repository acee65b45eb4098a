-- What would make a healthy run faster, by how much, and how sure that is.
-- Copies are left out, and so are another split where a stage became slow, and slow steps where a run
-- slowed down to its end: that is to be mended.
-- @report What would make it faster
-- @scope fleet
-- @grain run_id, kind
-- @column kind VARCHAR | split: another split of the layers over the stages; micro_batches: more of them per step; exposed_communication: communication beside compute; slow_steps: a few steps far above the others.
-- @column gain_ratio DOUBLE | Part of the step time that it would save: for split of the modelled step, for micro_batches per sample, for exposed_communication at most, for slow_steps of all steps.
-- @column change VARCHAR | What to change.
-- @column confidence VARCHAR | modelled: from the times of some modules; measured: from times of whole stages or steps; theory: from the schedule alone; bound: at most.
-- @column evidence VARCHAR | What it rests on, in one sentence.
SELECT o.run_id, o.kind, o.gain_ratio, o.change, o.confidence, o.evidence
FROM _run_opportunities AS o
SEMI JOIN _fleet_runs AS f USING (run_id)
LEFT JOIN (SELECT DISTINCT run_id FROM _slow_stages) AS s USING (run_id)
LEFT JOIN _slowed_runs AS d USING (run_id)
WHERE (s.run_id IS NULL OR o.kind <> 'split') AND (d.run_id IS NULL OR o.kind <> 'slow_steps')
