-- Findings about links and data loading, of one run by itself: slow_link, data_loading.
-- @internal
-- @grain run_id, kind, subject
-- @column kind VARCHAR | slow_link or data_loading.
-- @column severity VARCHAR | warning.
-- @column evidence VARCHAR | What was seen; begins with the subject.
-- @column lost_ratio DOUBLE | Time lost over the time of the steps.
-- @column cause VARCHAR | link or data.
-- @column advice VARCHAR | What to do.
-- @column subject VARCHAR | What the finding is about.
WITH data_shares AS (
    SELECT
        d.run_id,
        ordered_sum(d.share_ms) AS data_ms,
        arg_min(d.op, (-d.share_ms, d.op, d.stage)) AS op,
        arg_min(d.stage, (-d.share_ms, d.op, d.stage)) AS stage
    FROM op_shares AS d
    WHERE d.kind = 'data'
    GROUP BY d.run_id
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
        '{}{}: {} of {} bytes took {:.2f} ms in the median of {} calls, {:.1f} times as long as on'
            || ' links that carry the same ({:.2f} ms).',
        l.subject,
        coalesce(format(' (host {} to {})', p.host, q.host), ''),
        l.collective, l.size_bytes, l.time_ms, l.calls, ratio(l.time_ms, l.like_ms), l.like_ms
    ) AS evidence,
    least(1, ratio(l.lost_ms, s.step_p50_ms)) AS lost_ratio,
    'link' AS cause,
    format(
        'Test the link between {} (nccl-tests, ib_write_bw), check cable and counters.',
        coalesce(format('{} and {}', p.host, q.host), 'these ranks')
    ) AS advice
FROM _slow_links AS l
LEFT JOIN _run_spans AS s USING (run_id)
LEFT JOIN _stage_ranks AS p ON p.run_id = l.run_id AND p.rank = l.rank
LEFT JOIN _stage_ranks AS q ON q.run_id = l.run_id AND q.rank = l.peer_rank
UNION ALL BY NAME
SELECT
    d.run_id,
    'data_loading' AS kind,
    'warning' AS severity,
    d.op AS subject,
    d.stage,
    d.op,
    format(
        '{}: the job waited {:.1f} ms of a step of {:.1f} ms ({:.1f} %) for data.',
        d.op, d.data_ms, s.step_p50_ms, 100 * d.data_ms / s.step_p50_ms
    ) AS evidence,
    ratio(d.data_ms, s.step_p50_ms) AS lost_ratio,
    'data' AS cause,
    'Load data ahead of the step (more workers, prefetch, faster storage).' AS advice
FROM data_shares AS d
JOIN _run_spans AS s USING (run_id)
WHERE d.data_ms >= 0.05 * s.step_p50_ms AND d.data_ms > 1
