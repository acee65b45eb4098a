-- What does the workload plan miss or misjudge?
-- @topic plans
-- @param run VARCHAR = "" | Part of the measured run's id; every run by default.
-- @param off DOUBLE = 0.1 | Errors above this are shown.
-- Traffic (MB on the bus) and compute (ms) of a plan beside the measured run of its configuration,
-- per rank and step; an error below 0 is planned too small. `not_in_plan` was measured and not
-- planned, `not_measured` the reverse. `plan_vs_measured` has the single collectives.

SELECT
    run_id,
    plan_run_id,
    kind,
    pass,
    coalesce(group_kind, layer_kind) AS what,
    coalesce(planned_compute_ms, planned_bytes / 1e6) AS planned,
    coalesce(measured_compute_ms, measured_bytes / 1e6) AS measured,
    CASE kind WHEN 'traffic' THEN 'MB' ELSE 'ms' END AS unit,
    coalesce(compute_error_ratio, bytes_error_ratio) AS error_ratio,
    reason
FROM plan_vs_measured
WHERE
    kind <> 'collective'
    AND contains(run_id, $run)
    AND (
        reason IN ('not_in_plan', 'not_measured')
        OR abs(coalesce(compute_error_ratio, bytes_error_ratio)) > $off
    )
ORDER BY run_id, plan_run_id, kind, pass NULLS LAST, what
