-- What is wrong with a run, how bad it is, why, what it costs and what to do.
-- The one source of gates, report, terminal, mail and summary. A file that belongs to no run has no run_id, and a
-- copy has no finding: what is wrong is said of the run that it repeats.
-- @scope fleet
-- @grain run_id?, kind, subject
-- @column kind VARCHAR | regressed, drifted, straggler, suspect, recurring, slow_stage, slow_node, slow_link, data_loading, slowed, loss_not_finite, wrong_values, incomplete, contradiction, unreadable, data_lost, model_failed or rejects.
-- @column severity VARCHAR | critical, warning or notice. A notice fails no gate.
-- @column level INTEGER | Place of the severity, to sort by: 1 critical, 2 warning, 3 notice.
-- @column subject VARCHAR | What the finding is about: a rank, host, stage, link, operation, figure or file.
-- @column op VARCHAR | Operation that is slow, or that explains most of a change.
-- @column since TIMESTAMP | Date of the first run of the present series: the same subject in runs of one configuration, without 3 runs in a row, for 36 hours or more, that could have had it and had not. NULL where the run has no date.
-- @column cost_gpu_hours DOUBLE GPU hours | GPU hours that the steps of this run lost: lost_ratio of their time on every rank. Slow ranks of a run have the same cost by replay, that of all of them; recurring and slow_node repeat it.
-- @column cost_basis VARCHAR | replay: what steps would have taken less with equal peers, as in whatif_runs; bound: a limit from the times of the rank, stage, link or step alone.
-- @column cost_bound VARCHAR | at_most: a bound; at_least: a replay where ranks have fewer than 3 peers and no asynchronous calls; NULL: the replay says the cost itself, it may err in both directions, or there is none.
-- @column slowdown DOUBLE | Of a slow rank as in straggler_ranks, of a host the median of its ranks; NULL of what is neither.
-- @column gate VARCHAR | Gate of --fail-on that holds the finding against the run; NULL where none does.
-- @column cause VARCHAR | device, node, work, link, data, stage, compute, input or unclear; of a job whose log says what ended it out of memory, host out of memory, device error, link error, collective timeout, network error, nccl error, loss not finite, node failure, cancelled, killed or error.
-- @column lost_ratio DOUBLE | Part of the steps' time that was lost, as cost_basis says.
-- @column brief VARCHAR | evidence in a few words, where kind, subject and cause say too little: of a run that is incomplete, whose steps became slower or wait for data, or whose loss is not finite.
-- @column incident VARCHAR | The incident that it belongs to, or that explains it; NULL for runs without a date.
SELECT
    f.run_id,
    f.kind,
    f.severity,
    f.level,
    f.subject,
    f.rank,
    f.stage,
    f.host,
    f.device,
    f.op,
    f.since,
    f.evidence,
    f.lost_ratio * s.gpu_hours AS cost_gpu_hours,
    CASE WHEN f.lost_ratio * s.gpu_hours IS NOT NULL THEN f.cost_basis END AS cost_basis,
    f.advice,
    f.gate,
    f.cause,
    f.lost_ratio,
    coalesce(e.culprit, f.incident) AS incident,
    CASE WHEN f.lost_ratio * s.gpu_hours IS NOT NULL THEN f.cost_bound END AS cost_bound,
    f.slowdown,
    f.brief
FROM _found AS f
LEFT JOIN _explained AS e USING (run_id, incident)
LEFT JOIN _run_spans AS s USING (run_id)
