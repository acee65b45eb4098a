-- What would make a healthy run faster, by how much, and how sure that is.
-- Copies are left out, and so is what a finding explains: another split where a stage became slow or loads data
-- slowly, slow steps of a run that slowed down to its end, uneven operations beside a slow rank, host, link or loader.
-- @report What would make it faster
-- @scope fleet
-- @grain run_id, kind
-- @column kind VARCHAR | split: another split of the layers over the stages; micro_batches: more of them per step; exposed_communication: communication beside compute; idle_devices: devices wait for their host; slow_steps: a few steps far above the others; uneven_operations: operations that take long on one rank after another.
-- @column gain_ratio DOUBLE | Part of the step time that it would save: for split of the step as replayed or modelled, for micro_batches per sample, for exposed_communication and idle_devices at most, for slow_steps of the time of all steps, for uneven_operations if each were as long as the median of its peers.
-- @column change VARCHAR | What to change.
-- @column confidence VARCHAR | modelled: from times of stages or of some of their modules by the schedule; measured: from times of steps; replay: from the replay of the run; theory: from the schedule alone; bound: at most.
-- @column evidence VARCHAR | What it rests on, in one sentence.
SELECT o.run_id, o.kind, o.gain_ratio, o.change, o.confidence, o.evidence
FROM (
    FROM _run_opportunities
    UNION ALL
    FROM _device_opportunities
    UNION ALL
    FROM _loss_opportunities
) AS o
SEMI JOIN _fleet_runs AS f USING (run_id)
ANTI JOIN _found AS s
    ON s.run_id = o.run_id AND CASE o.kind
        WHEN 'split' THEN s.family IN ('slow_stage', 'data_loading')
        WHEN 'slow_steps' THEN s.family = 'slowed'
        WHEN 'uneven_operations' THEN s.family IN ('slow_rank', 'slow_node', 'slow_link', 'data_loading')
        ELSE false
    END
