-- What was planned of a measured run beside what was measured of it, as far as its input can tell.
-- Rank traces are held against the plan's communication and compute, logs against the forward
-- compute of its layers.
-- @scope fleet
-- @grain run_id, kind, pass?, collective?, group_kind?, layer_kind?
-- @column layer_kind VARCHAR | embedding, block, head or other.
-- @column in_plan BOOLEAN | The plan has it.
-- @column seen BOOLEAN | The measured run has it.
-- @column steps BIGINT steps | Steps of the measured run that count.
-- @column run_reason VARCHAR | Why none does.
-- @column planned_calls DOUBLE calls | Communications per rank and step.
-- @column measured_calls DOUBLE calls | Communications per rank and step.
-- @column planned_bytes DOUBLE bytes | Their sizes S, summed.
-- @column measured_bytes DOUBLE bytes | Their sizes S, summed.
-- @column planned_compute_ns DOUBLE ns | Planned compute per rank and step.
-- @column measured_compute_ns DOUBLE ns | Measured compute per rank and step.
WITH pairs AS (
    SELECT p.run_id, p.plan_run_id, c.traced, len(c.steps) AS steps, c.reason AS run_reason
    FROM _plan_pairs AS p
    JOIN _compared_steps AS c USING (run_id)
),
sides AS (
    SELECT
        p.run_id, w.kind, w.pass, w.collective, w.group_kind, w.layer_kind,
        true AS in_plan,
        false AS seen,
        w.group_size,
        w.calls AS planned_calls,
        w.moved_bytes AS planned_bytes,
        w.work_ns AS planned_compute_ns,
        w.unprofiled_rows,
        CASE WHEN w.kind = 'collective' AND w.moved_bytes IS NULL THEN 'out_of_range' END AS reason
    FROM pairs AS p
    JOIN _planned_work AS w ON w.run_id = p.plan_run_id
    WHERE p.traced = (w.kind <> 'layer')
    UNION ALL BY NAME
    SELECT
        c.run_id, 'collective' AS kind, c.pass, c.collective, c.group_kind,
        false AS in_plan,
        true AS seen,
        c.group_size,
        c.calls AS measured_calls,
        c.moved_bytes AS measured_bytes,
        c.comm_ns,
        c.busbw_gbps,
        c.reason
    FROM pairs AS p
    JOIN _measured_comm AS c USING (run_id)
    UNION ALL BY NAME
    SELECT
        c.run_id,
        CASE WHEN p.traced THEN 'compute' ELSE 'layer' END AS kind,
        c.pass,
        c.layer_kind,
        false AS in_plan,
        true AS seen,
        c.work_ns AS measured_compute_ns,
        c.overlapped
    FROM pairs AS p
    JOIN _measured_compute AS c USING (run_id)
),
beside AS (
    SELECT
        run_id, kind, pass, collective, group_kind, layer_kind,
        bool_or(in_plan) AS in_plan,
        bool_or(seen) AS seen,
        -- The trace knows its groups best; a plan's collective that it lacks is of the same group.
        coalesce(
            max(min(group_size) FILTER (seen)) OVER of_group, max(min(group_size)) OVER of_group
        ) AS group_size,
        max(planned_calls) AS planned_calls,
        max(measured_calls) AS measured_calls,
        max(planned_bytes) AS planned_bytes,
        max(measured_bytes) AS measured_bytes,
        max(comm_ns) AS comm_ns,
        max(busbw_gbps) AS busbw_gbps,
        max(planned_compute_ns) AS planned_compute_ns,
        max(measured_compute_ns) AS measured_compute_ns,
        bool_or(overlapped) AS overlapped,
        max(unprofiled_rows) AS unprofiled_rows,
        max(reason) AS reason
    FROM sides
    GROUP BY run_id, kind, pass, collective, group_kind, layer_kind
    WINDOW of_group AS (PARTITION BY run_id, group_kind)
)
SELECT b.*, p.plan_run_id, p.steps, p.run_reason
FROM beside AS b
JOIN pairs AS p USING (run_id)
