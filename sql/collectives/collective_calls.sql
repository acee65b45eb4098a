-- Every communication of a rank, with the call it is part of: size, who waited for whom, speed.
-- A send and the receive it feeds are one call. Bandwidth is nccl-tests' (doc/PERFORMANCE.md).
-- @grain run_id, call, rank
-- @order run_id, rank, seq, sub_seq
-- @column call VARCHAR | The call: rank, operation and sub-operation of its lowest member as `rank:seq:sub`; an unmatched communication is a call of its own.
-- @column size_bytes BIGINT bytes | Size S of algbw = S / t; what it counts is in size_convention.
-- @column overlapped BOOLEAN | Asynchronous: its time contains the weight-gradient kernel that ran beside it.
-- @column duration_ms DOUBLE ms | Own duration.
-- @column time_ms DOUBLE ms | Time t of the call, see time_basis.
-- @column time_basis VARCHAR | min: the group's shortest duration; transfer: of a message, from the later of send and receive start to the end of the receive, where clocks tell it; own: own duration, the peers were not matched.
-- @column algbw_gbps DOUBLE GB/s | S / t.
-- @column busbw_gbps DOUBLE GB/s | algbw times the collective's factor, comparable with the speed of the links.
-- @column skew_ms DOUBLE ms | Last arrival of a member after the first.
-- @column wait_ms DOUBLE ms | Last arrival of a member after this rank's own; off by at most clock_uncertainty_ms.
-- @column transfer_ms DOUBLE ms | From the last arrival to this rank's end; NULL where that is less than clock_uncertainty_ms.
-- @column last_rank INTEGER | Member that arrived last: the one that the others waited for; NULL where members on two clocks arrived too close to tell.
-- @column skew_reason VARCHAR | Why there is no skew, wait or transfer.
-- @column clock_uncertainty_ms DOUBLE ms | How far off the difference of two members' clocks can be; a smaller skew is none.
-- @column matched BOOLEAN | All members of the group were seen making this call.
-- @column peers BIGINT ranks | Other members of the call that were seen; NULL where the group is not known.
-- @column group_size INTEGER ranks | Members n of the group.
-- @column group_size_source VARCHAR | Where n comes from: set, printed, name, derived, or pair for a send and its receive.
-- @column lowest_rank INTEGER | Lowest member of the call: the rows of which it is the rank have every call once.
-- @column size_convention VARCHAR | What S counts: buffer, total_output, total_input, send_buffer, or declared (a number of parameters, not the message).
WITH kernels AS (SELECT DISTINCT run_id FROM ops WHERE stream IS NOT NULL),
sized AS (
    SELECT
        m.*,
        coalesce(r.simulated, false) AS simulated,
        o.rank_order IS NULL AS contradicted,
        CASE WHEN contradicted THEN 'stages_contradict' ELSE 'group_size_unknown' END AS unknown_size,
        CASE WHEN d.step IS NULL THEN 'peer_not_seen' ELSE 'step_shifted' END AS unmatched_reason,
        -- A transfer that the clocks cannot tell from nothing is taken from the shorter of its ends.
        m.collective IN ('send', 'recv') AND m.aligned
            AND m.received_ns - m.last_start_ns >= m.uncertainty_ns AS transferred,
        -- What a trainer prints of its gradients; a kernel has the size of its message.
        m.collective = 'all_reduce' AND m.sub = 0 AND m.group_kind IN ('dp', 'expert_dp')
            AND k.run_id IS NULL AS declared,
        message_bytes(
            m.collective,
            CASE WHEN m.collective = 'all_to_all' AND m.matched THEN m.largest_bytes ELSE m.bytes END,
            m.group_size
        ) AS size_bytes,
        CASE
            WHEN coalesce(r.simulated, false) THEN NULL
            WHEN transferred THEN m.received_ns - m.last_start_ns
            WHEN m.matched THEN m.shortest_ns
            WHEN m.collective <> 'recv' THEN m.duration_ns
        END AS time_ns
    FROM _comm_matches AS m
    JOIN runs AS r ON r.run_id = m.run_id
    JOIN _rank_orders AS o ON o.run_id = m.run_id
    LEFT JOIN _shifted_steps AS d ON d.run_id = m.run_id AND d.step = m.step
    LEFT JOIN kernels AS k ON k.run_id = m.run_id
),
judged AS (
    SELECT
        *,
        CASE
            WHEN simulated THEN 'simulated'
            WHEN duration_ns IS NULL THEN 'not_timed'
            WHEN group_size = 1 THEN 'group_of_one'
            WHEN overlapped THEN 'overlaps_compute'
            WHEN contradicted OR group_size IS NULL THEN unknown_size
            WHEN NOT matched THEN unmatched_reason
            WHEN NOT aligned THEN 'clocks_not_aligned'
            WHEN last_start_ns - first_start_ns < uncertainty_ns THEN 'below_clock_uncertainty'
        END AS skew_reason,
        greatest(0, finish_ns - last_start_ns) AS transfer_ns,
        CASE
            WHEN simulated THEN 'simulated'
            WHEN duration_ns IS NULL THEN 'not_timed'
            WHEN group_size = 1 THEN 'group_of_one'
            WHEN overlapped THEN 'overlaps_compute'
            WHEN declared THEN 'declared_size'
            WHEN collective = 'recv' AND contradicted THEN unknown_size
            WHEN collective = 'recv' AND NOT matched THEN unmatched_reason
            WHEN bytes IS NULL THEN 'size_unknown'
            WHEN size_bytes IS NULL THEN unknown_size
            WHEN time_ns = 0 THEN 'below_clock_resolution'
            WHEN bus_factor(collective, group_size) IS NULL THEN unknown_size
        END AS reason
    FROM sized
)
SELECT
    run_id, concat_ws(':', lowest_rank, lowest_seq, lowest_sub) AS call, rank, stage, step,
    collective, group_kind, dtype, size_bytes, overlapped,
    ns_to_ms(duration_ns) AS duration_ms, ns_to_ms(time_ns) AS time_ms,
    CASE
        WHEN time_ns IS NULL THEN NULL
        WHEN NOT matched OR group_size = 1 THEN 'own'
        WHEN transferred THEN 'transfer'
        ELSE 'min'
    END::ENUM ('own', 'transfer', 'min') AS time_basis,
    CASE WHEN reason IS NULL OR reason = unknown_size THEN size_bytes / time_ns END AS algbw_gbps,
    algbw_gbps * bus_factor(collective, group_size) AS busbw_gbps,
    CASE WHEN skew_reason IS NULL THEN ns_to_ms(last_start_ns - first_start_ns) END AS skew_ms,
    CASE WHEN skew_reason IS NULL THEN ns_to_ms(last_start_ns - begin_ns) END AS wait_ms,
    CASE WHEN skew_reason IS NULL AND transfer_ns >= uncertainty_ns THEN ns_to_ms(transfer_ns) END
        AS transfer_ms,
    CASE WHEN skew_reason IS NULL THEN last_rank END AS last_rank,
    skew_reason::call_reason AS skew_reason,
    ns_to_ms(uncertainty_ns) AS clock_uncertainty_ms,
    matched, peers, group_size, group_size_source,
    CASE
        WHEN declared THEN 'declared'
        WHEN collective = 'all_gather' THEN 'total_output'
        WHEN collective = 'reduce_scatter' THEN 'total_input'
        WHEN collective = 'all_to_all' THEN 'send_buffer'
        ELSE 'buffer'
    END::ENUM ('declared', 'total_output', 'total_input', 'send_buffer', 'buffer') AS size_convention,
    reason::call_reason AS reason, micro_batch, parent_op, tensor, caller, seq, sub_seq, source_id, line, lowest_rank
FROM judged
