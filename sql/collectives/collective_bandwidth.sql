-- Time and bandwidth of each kind of call, by size; a call of several ranks counts once.
-- Figures are of matched calls where there are any, else of single ranks' own times.
-- @report Communication: time and bandwidth by size
-- @grain run_id, collective, group_kind?, dtype?, size_bytes?, overlapped
-- @column size_bytes BIGINT bytes | Size S of algbw = S / t; what it counts is in size_convention.
-- @column overlapped BOOLEAN | Asynchronous calls: their time contains the weight-gradient kernel, so they have a time and no bandwidth.
-- @column size_convention VARCHAR | What S counts: buffer, total_output, total_input, send_buffer, or declared (a number of parameters, not the message).
-- @column group_size INTEGER ranks | Members n of the group.
-- @column group_size_source VARCHAR | Where n comes from: set, printed, name, derived, or pair for a send and its receive.
-- @column calls BIGINT calls | Calls; a matched send and receive are one, listed as send. A communication whose peers were not matched is a call of its own.
-- @column coarse_calls BIGINT calls | Calls shorter than 10 ticks of the trace's clock: their times are rough.
-- @column time_p50_ms DOUBLE ms | Median time of a call.
-- @column time_p95_ms DOUBLE ms | 95th percentile of the time of a call.
-- @column algbw_p50_gbps DOUBLE GB/s | Median of S / t over calls that took time.
-- @column busbw_p50_gbps DOUBLE GB/s | The same times the collective's factor, comparable with the speed of the links.
-- @column time_basis VARCHAR | min: the group's shortest duration; transfer: from the later of send and receive start to the end of the receive; own: own duration, the peers were not matched.
-- @column matched_calls BIGINT calls | Calls of which every member was seen.
WITH once AS (
    SELECT
        c.* EXCLUDE (collective),
        time_ms < ns_to_ms(10 * coalesce(r.clock_tick_ns, 0)) AS coarse,
        CASE WHEN matched AND collective = 'recv' THEN 'send' ELSE collective END AS collective
    FROM collective_calls AS c
    JOIN runs AS r USING (run_id)
    WHERE c.rank = c.lowest_rank
),
parts AS (
    -- Matched calls and the others apart.
    SELECT
        run_id, collective, group_kind, dtype, size_bytes, overlapped, matched,
        min(size_convention) AS size_convention,
        min(group_size) AS group_size,
        min(group_size_source) AS group_size_source,
        count(*) AS calls,
        count(*) FILTER (coarse) AS coarse_calls,
        quantile_cont(time_ms, [0.5, 0.95]) AS times_ms,
        quantile_cont(algbw_gbps, 0.5) AS algbw_p50_gbps,
        quantile_cont(busbw_gbps, 0.5) AS busbw_p50_gbps,
        min(time_basis) AS time_basis,
        CASE WHEN count(busbw_gbps) = 0 THEN min(reason) END AS reason
    FROM once
    GROUP BY ALL
)
SELECT
    run_id,
    collective,
    group_kind,
    dtype,
    size_bytes,
    overlapped,
    min(size_convention) AS size_convention,
    min(group_size) AS group_size,
    min(group_size_source) AS group_size_source,
    sum(calls)::BIGINT AS calls,
    sum(coarse_calls)::BIGINT AS coarse_calls,
    arg_max_null(times_ms[1], matched) AS time_p50_ms,
    arg_max_null(times_ms[2], matched) AS time_p95_ms,
    arg_max_null(algbw_p50_gbps, matched) AS algbw_p50_gbps,
    arg_max_null(busbw_p50_gbps, matched) AS busbw_p50_gbps,
    arg_max_null(time_basis, matched) AS time_basis,
    coalesce(sum(calls) FILTER (matched), 0)::BIGINT AS matched_calls,
    arg_max_null(reason, matched) AS reason
FROM parts
GROUP BY run_id, collective, group_kind, dtype, size_bytes, overlapped
