-- What a workload plan of a run's configuration says, beside what was measured: per rank and step, as the mean over the stages.
-- It is the plan that is judged, not the run: a simulator that is fed with it inherits its errors.
-- @report Plans beside measurements
-- @scope fleet
-- @grain run_id, plan_run_id, kind, pass?, collective?, group_kind?, layer_kind?
-- @column run_id VARCHAR | The measured run.
-- @column plan_run_id VARCHAR | Run of the plan that goes with it: of the plans of its configuration the likest, then the latest.
-- @column kind VARCHAR | collective: one kind of call. traffic: all calls of a group together, by the bytes they put on the bus, which an all-reduce and the all-gather and reduce-scatter that stand for it have in common. compute: without communication. layer: forward compute of a log's layers of a kind.
-- @column pass VARCHAR | forward, backward (both gradients), finalize (gradient synchronisation and optimizer), or NULL: outside of them (loading data, the loss).
-- @column layer_kind VARCHAR | embedding, block, head or other; NULL except for logs.
-- @column bytes_error_ratio DOUBLE | Planned bytes over measured, minus 1: above 0 the plan moves too much.
-- @column compute_error_ratio DOUBLE | Planned compute over measured, minus 1: above 0 the plan computes too long.
-- @column planned_calls DOUBLE calls | Communications of more than 0 bytes that the plan lists. In all planned figures an embedding and a head, of which a pipeline has one each, count by 1 / pp.
-- @column measured_calls DOUBLE calls | Communications of more than 0 bytes that the trace has.
-- @column planned_bytes DOUBLE bytes | Sizes S as in collective_calls, summed; of traffic times the collective's bus factor.
-- @column measured_bytes DOUBLE bytes | The same of the trace, mean over steps.
-- @column planned_compute_ms DOUBLE ms | Compute of the plan's profiled rows.
-- @column measured_compute_ms DOUBLE ms | Traces: time of forward_step, backward_step or optimizer_step without the communication it waits for; asynchronous calls stay in (reason overlaps_compute), for their time contains the weight-gradient kernel. Logs: of the layers' modules. Median over steps.
-- @column measured_comm_ms DOUBLE ms | Time of the calls, mean over steps; asynchronous calls contain the compute they overlap.
-- @column measured_busbw_gbps DOUBLE GB/s | Bytes on the bus over time, of all calls that have a bandwidth.
-- @column steps BIGINT steps | Whole steps without warm-up that were measured.
-- @column unprofiled_rows BIGINT rows | Rows of the plan left out of planned_compute_ms: placeholders under 1,000 ns.
WITH traffic AS (
    SELECT
        run_id, plan_run_id, pass, group_kind, steps, run_reason,
        bool_or(in_plan) AS in_plan,
        bool_or(seen) AS seen,
        max(group_size) AS group_size,
        ordered_sum(planned_calls) AS planned_calls,
        ordered_sum(measured_calls) AS measured_calls,
        ordered_sum(planned_bytes * bus_factor(collective, group_size)) AS planned_bytes,
        CASE WHEN count(reason) = 0
            THEN ordered_sum(measured_bytes * bus_factor(collective, group_size))
        END AS measured_bytes,
        CASE WHEN count(comm_ns) = count(*) FILTER (seen) THEN ordered_sum(comm_ns) END AS comm_ns,
        min(reason) AS reason
    FROM _plan_rows
    WHERE kind = 'collective'
    GROUP BY ALL
),
compared AS (
    FROM _plan_rows
    UNION ALL BY NAME
    SELECT 'traffic' AS kind, * FROM traffic
),
judged AS (
    SELECT
        *,
        kind IN ('collective', 'traffic') AS moves,
        CASE
            WHEN group_size = 1 THEN 'group_of_one'
            WHEN run_reason IS NOT NULL THEN run_reason
            WHEN NOT in_plan THEN 'not_in_plan'
            WHEN NOT seen THEN 'not_measured'
            WHEN reason IS NOT NULL THEN reason
            WHEN moves AND planned_bytes IS NULL THEN 'group_size_unknown'
            WHEN NOT moves AND planned_compute_ns IS NULL THEN 'not_profiled'
            WHEN NOT moves AND measured_compute_ns IS NULL THEN 'not_timed'
            WHEN NOT moves AND measured_compute_ns = 0 THEN 'below_clock_resolution'
        END AS missing
    FROM compared
)
SELECT
    run_id, plan_run_id, kind, pass, collective, group_kind, layer_kind,
    CASE WHEN missing IS NULL THEN ratio(planned_bytes, measured_bytes) - 1 END AS bytes_error_ratio,
    CASE WHEN missing IS NULL THEN ratio(planned_compute_ns, measured_compute_ns) - 1 END
        AS compute_error_ratio,
    CASE
        WHEN missing IS NOT NULL THEN missing
        WHEN kind = 'layer' THEN 'forward_modules_only'
        WHEN overlapped THEN 'overlaps_compute'
    END AS reason,
    planned_calls,
    measured_calls,
    planned_bytes,
    measured_bytes,
    ns_to_ms(planned_compute_ns) AS planned_compute_ms,
    ns_to_ms(measured_compute_ns) AS measured_compute_ms,
    ns_to_ms(comm_ns) AS measured_comm_ms,
    busbw_gbps AS measured_busbw_gbps,
    steps,
    unprofiled_rows
FROM judged
