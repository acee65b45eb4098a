-- No operation or communication ends before it starts or lasts less than nothing.
-- @severity error
SELECT run_id, source_id, line, rank, seq, start_ns, end_ns, duration_ns
FROM (
    SELECT run_id, source_id, line, rank, seq, start_ns, end_ns, duration_ns FROM ops
    UNION ALL
    SELECT run_id, source_id, line, rank, seq, start_ns, end_ns, duration_ns FROM comms
) AS timed
WHERE end_ns < start_ns OR duration_ns < 0
