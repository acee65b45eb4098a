-- Which bandwidth does a plan need to hide its communication?
-- @topic plans
-- @param run VARCHAR = "" | Part of the plan's run id; every plan by default.
-- Bytes over the compute of the pass: a link slower than `needed_gbps` leaves the pass waiting.
-- NULL with its reason where the plan has no compute times or the group has one member.

SELECT
    run_id,
    pass,
    collective,
    group_kind,
    group_size,
    calls,
    bytes,
    compute_ms,
    needed_gbps,
    reason
FROM workload_comm
WHERE contains(run_id, $run)
ORDER BY needed_gbps DESC NULLS LAST, run_id, pass, collective, group_kind
