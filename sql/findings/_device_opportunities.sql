-- What devices of a profiler trace do beside compute: communicate, with nothing that hides it, or wait for their host.
-- @grain run_id, kind
-- @column kind VARCHAR | exposed_communication: communication beside compute; idle_devices: devices wait for hosts.
-- @column gain_ratio DOUBLE | Part of the step time that it would save, at most.
-- @column change VARCHAR | What to change.
-- @column confidence VARCHAR | bound: at most.
-- @column evidence VARCHAR | What it rests on, in one sentence.
WITH traced AS (
    SELECT d.*, lag(d.step) OVER (PARTITION BY d.run_id, d.rank ORDER BY d.step) = d.step - 1 AS follows
    FROM device_steps AS d
    JOIN step_stats AS s USING (run_id, step)
    WHERE NOT s.warmup AND s.step_ms IS NOT NULL
),
steps AS (
    SELECT
        run_id, step,
        ordered_mean(window_ms) AS window_ms,
        quantile_cont(idle_ms, 0.5) AS usual_ms,
        arg_min(rank, (-idle_ms, rank)) AS rank,
        max(idle_ms) AS most_ms,
        -- Others wait in communication for a device that is late; where they do not, its idle time costs nothing.
        greatest(0, least(
            most_ms - usual_ms,
            quantile_cont(exposed_comm_ms, 0.5) - arg_min(exposed_comm_ms, (-idle_ms, rank))
        )) AS alone_ms
    FROM traced
    -- What was before the first step of a trace is not known.
    WHERE follows
    GROUP BY run_id, step
),
idle AS (
    SELECT
        run_id,
        ratio(ordered_sum(usual_ms), ordered_sum(window_ms)) AS usual_ratio,
        ratio(ordered_sum(most_ms), ordered_sum(window_ms)) AS most_ratio,
        ordered_sum(alone_ms) AS lost_ms,
        ratio(lost_ms, ordered_sum(window_ms)) AS alone_ratio,
        usual_ratio + alone_ratio AS idle_ratio
    FROM steps
    GROUP BY run_id
),
placed AS (
    SELECT s.run_id, s.rank, s.alone_ms, p.host
    FROM steps AS s
    JOIN _rank_places AS p USING (run_id, rank)
    WHERE s.alone_ms > 0
),
-- The rank, else the host, for which the others wait most: in 3 steps or more, and half of all that is lost so.
late AS (
    SELECT l.run_id, l.host, l.device
    FROM (
        SELECT
            run_id, 1 AS width, 'the host of ' || rank_placed(rank, NULL, host, NULL) AS host,
            'that of ' || rank_placed(rank, NULL, host, NULL) AS device, ordered_sum(alone_ms) AS lost_ms
        FROM placed
        GROUP BY run_id, rank, placed.host
        HAVING count(*) >= 3
        UNION ALL
        SELECT run_id, 2, 'host ' || host, 'one of host ' || host, ordered_sum(alone_ms)
        FROM placed
        WHERE host IS NOT NULL
        GROUP BY run_id, host
        HAVING count(*) >= 3
    ) AS l
    JOIN idle AS i USING (run_id)
    WHERE 2 * l.lost_ms >= i.lost_ms AND i.alone_ratio >= i.usual_ratio
    QUALIFY row_number() OVER (PARTITION BY l.run_id ORDER BY l.width, l.lost_ms DESC, l.host) = 1
),
exposed AS (
    SELECT run_id, ratio(ordered_sum(exposed_comm_ms), ordered_sum(window_ms)) AS exposed_ratio
    FROM traced
    GROUP BY run_id
)
SELECT
    e.run_id, 'exposed_communication' AS kind, e.exposed_ratio AS gain_ratio,
    'Overlap communication with compute; where ranks wait for one, mend that: tracelake ask last_to_arrive' AS change,
    'bound' AS confidence,
    format(
        'Communication that no kernel hides, waiting for other ranks included, takes {:.1f} % of the step.',
        100 * e.exposed_ratio
    ) AS evidence
FROM exposed AS e
LEFT JOIN idle AS i USING (run_id)
-- To wait for a device that its host lets wait is told below.
WHERE e.exposed_ratio - coalesce(i.alone_ratio, 0) >= 0.15
UNION ALL
SELECT
    i.run_id, 'idle_devices', i.idle_ratio,
    coalesce(
        format('See what {} does in a step: data loading, garbage collection, other processes.', l.host),
        'Let hosts run ahead of their devices: load data before the step, never synchronize nor collect garbage in it,'
            || ' launch less (CUDA graphs, fused kernels).'
    ),
    'bound',
    concat(
        format(
            'Devices that wait for their host cost up to {:.1f} % of the step:'
                || ' the median one does nothing in {:.1f} % of it',
            100 * i.idle_ratio, 100 * i.usual_ratio
        ),
        CASE WHEN i.alone_ratio >= i.usual_ratio THEN format(
            ', {} in {:.1f} %', coalesce(l.device, 'one or another'), 100 * i.most_ratio
        ) END,
        '.'
    )
FROM idle AS i
LEFT JOIN late AS l USING (run_id)
WHERE i.idle_ratio >= 0.1
