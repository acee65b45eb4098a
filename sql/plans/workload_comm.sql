-- Communication that a plan asks for, per pass and group, and the bandwidth that would hide it.
-- A plan is not a measurement.
-- @report Planned communication
-- @grain run_id, pass, collective, group_kind
-- @column group_kind VARCHAR | Communication group: tp, dp, expert or dp_ep; `unknown` where the plan's word names none.
-- @column calls BIGINT calls | Communications of more than 0 bytes.
-- @column bytes BIGINT bytes | Full logical buffers, summed; NULL beyond what a BIGINT holds.
-- @column compute_ms DOUBLE ms | Compute of the pass: sum over all its profiled rows, whatever they communicate.
-- @column needed_gbps DOUBLE GB/s | Bytes over compute time: what would hide the communication behind it.
-- @column group_size INTEGER ranks | Members of the group.
-- @column unprofiled_rows BIGINT rows | Rows of the pass left out of compute_ms: their time is a placeholder under 1,000 ns.
WITH passes AS (
    SELECT
        run_id,
        pass,
        sum(compute_ns) FILTER (compute_ns >= 1000) AS compute_ns,
        count(*) FILTER (compute_ns < 1000) AS unprofiled_rows
    FROM workload_passes
    GROUP BY run_id, pass
),
calls AS (
    SELECT
        run_id,
        pass,
        collective,
        coalesce(group_kind, 'unknown') AS group_kind,
        count(*) AS calls,
        try_cast(sum(bytes) AS BIGINT) AS bytes
    FROM workload_passes
    WHERE pass IS NOT NULL AND collective IS NOT NULL AND bytes > 0
    GROUP BY ALL
),
sized AS (
    SELECT
        c.*,
        p.compute_ns,
        p.unprofiled_rows,
        CASE c.group_kind
            WHEN 'tp' THEN r.tp
            WHEN 'dp' THEN r.dp
            WHEN 'expert' THEN r.ep
            WHEN 'dp_ep' THEN r.dp // nullif(r.ep, 0)
        END AS group_size
    FROM calls AS c
    JOIN passes AS p USING (run_id, pass)
    JOIN runs AS r USING (run_id)
)
SELECT
    run_id,
    pass,
    collective,
    group_kind,
    calls,
    bytes,
    ns_to_ms(compute_ns) AS compute_ms,
    CASE WHEN group_size IS DISTINCT FROM 1 THEN ratio(bytes, compute_ns) END AS needed_gbps,
    CASE
        WHEN group_size = 1 THEN 'group_of_one'
        WHEN compute_ns IS NULL THEN 'not_profiled'
        WHEN bytes IS NULL THEN 'out_of_range'
    END AS reason,
    group_size,
    unprofiled_rows
FROM sized
