-- Findings about links and results of tests, of one run by itself: slow_link, wrong_values.
-- @grain run_id, kind, subject
-- @column kind VARCHAR | slow_link or wrong_values.
-- @column severity VARCHAR | warning; critical for wrong values.
-- @column lost_ratio DOUBLE | Time lost over the time of the steps.
-- @column cause VARCHAR | link, or where values are wrong the host, if it is one.
-- @column subject VARCHAR | What the finding is about.
WITH counted_results AS (
    SELECT run_id, size_bytes, line, wrong, NULL AS gbps, collective, hosts
    FROM bandwidth_results
    WHERE wrong > 0
    UNION ALL BY NAME
    -- Early versions of nccl-tests count over a whole test; a test may say which speed is too low.
    SELECT run_id, unnest(tests, max_depth := 2)
    FROM (
        SELECT
            run_id,
            from_json(
                try_cast(attributes['failed'] AS JSON),
                '[{"collective": "VARCHAR", "hosts": ["VARCHAR"], "wrong": "BIGINT", "gbps": "DOUBLE"}]'
            ) AS tests
        FROM runs
        WHERE attributes['failed'] IS NOT NULL
    )
),
test_results AS (
    SELECT
        run_id, size_bytes, line, wrong, gbps, coalesce(collective, 'unknown collective') AS collective,
        list_sort(list_distinct(hosts)) AS places,
        CASE len(places)
            WHEN 1 THEN 'host ' || places[1]
            WHEN 2 THEN concat(places[1], ' - ', places[2])
            ELSE coalesce(
                format('{} hosts from {} to {}', len(places), places[1], places[-1]),
                'hosts unknown'
            )
        END AS subject
    FROM counted_results
)
SELECT
    l.run_id,
    'slow_link' AS kind,
    'warning' AS severity,
    l.subject,
    l.rank,
    p.stage,
    p.host,
    l.collective AS op,
    format(
        '{}{}: {}{} took {:.2f} ms in the median of {} calls, {:.1f} times as long as on'
            || ' links that carry the same ({:.2f} ms).',
        l.subject,
        CASE WHEN p.host = q.host THEN format(' (within host {})', p.host)
            ELSE coalesce(format(' (host {} to {})', p.host, q.host), '')
        END,
        l.collective, coalesce(format(' of {} bytes', l.size_bytes), ''),
        l.time_ms, l.calls, ratio(l.time_ms, l.like_ms), l.like_ms
    ) AS evidence,
    least(1, ratio(l.lost_ms, s.step_p50_ms)) AS lost_ratio,
    'link' AS cause,
    CASE WHEN p.host = q.host
        THEN format('Test the links within {} (nccl-tests), check NVLink, PCIe and their counters.', p.host)
        ELSE format(
            'Test the link between {} (nccl-tests, ib_write_bw), check cable and counters.',
            coalesce(format('{} and {}', p.host, q.host), 'these ranks')
        )
    END AS advice
FROM _slow_links AS l
LEFT JOIN _run_spans AS s USING (run_id)
LEFT JOIN _stage_ranks AS p ON p.run_id = l.run_id AND p.rank = l.rank
LEFT JOIN _stage_ranks AS q ON q.run_id = l.run_id AND q.rank = l.peer_rank
UNION ALL BY NAME
SELECT
    run_id,
    'wrong_values' AS kind,
    'critical' AS severity,
    'faults' AS gate,
    subject,
    CASE len(any_value(places)) WHEN 1 THEN any_value(places)[1] END AS host,
    format(
        '{}: wrong values in results of bandwidth tests: {} ({}){}.',
        subject, sum(wrong)::BIGINT, string_agg(DISTINCT collective, ', ' ORDER BY collective),
        coalesce(format(', first in line {}, for {} bytes', min(line), arg_min(size_bytes, line)), '')
    ) AS evidence,
    CASE len(any_value(places)) WHEN 1 THEN 'node' ELSE 'unclear' END AS cause,
    'Nothing that this hardware computes can be trusted: take it out of service, repeat the test on'
        || ' fewer devices to find the one, and check ECC errors, NVLink, PCIe and the network.' AS advice
FROM test_results
WHERE wrong > 0
GROUP BY run_id, subject
UNION ALL BY NAME
SELECT
    run_id,
    'slow_link' AS kind,
    'warning' AS severity,
    subject,
    CASE len(any_value(places)) WHEN 1 THEN any_value(places)[1] END AS host,
    format(
        '{}: bandwidth tests failed, because they are slower than NCCL_TESTS_MIN_BW demands: {:.2f} GB/s ({}).',
        subject, min(gbps), string_agg(DISTINCT collective, ', ' ORDER BY collective)
    ) AS evidence,
    CASE len(any_value(places)) WHEN 1 THEN 'node' ELSE 'link' END AS cause,
    'Repeat the test on fewer hosts and devices to find the slow one; check NVLink, PCIe and cables.' AS advice
FROM test_results
WHERE gbps IS NOT NULL
GROUP BY run_id, subject
