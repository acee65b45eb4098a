-- What slow ranks cost a run, and whether it is the same rank every time.
-- @grain run_id
-- @column straggler_rank INTEGER | Straggler or suspect that lost most time, the lowest of equal ones.
-- @column culprit_stability_ratio DOUBLE | Share of the steps with a culprit whose culprit is the most frequent one.
-- @column time_lost_ms DOUBLE ms | Largest excess of a straggler or suspect in the step, at most the step's time, summed over the steps compared.
-- @column gpu_hours_lost DOUBLE GPU hours | That time on every rank of the job.
WITH compared AS (
    SELECT
        run_id,
        arg_min(rank, (-time_lost_ms, rank)) FILTER (verdict IN ('straggler', 'suspect')) AS straggler_rank
    FROM straggler_ranks
    WHERE verdict <> 'not_comparable'
    GROUP BY run_id
),
compared_steps AS (
    SELECT s.run_id, s.step, s.rank, s.culprit, s.excess_ms, t.step_ms, r.verdict
    FROM straggler_steps AS s
    JOIN straggler_ranks AS r ON r.run_id = s.run_id AND r.rank = s.rank
    LEFT JOIN step_stats AS t ON t.run_id = s.run_id AND t.step = s.step
    WHERE s.in_verdict AND NOT s.warmup
),
-- Ranks lose time beside each other: the one that lost most held up the job, not the sum.
step_losses AS (
    SELECT run_id, step, least(greatest(0, max(excess_ms)), any_value(step_ms)) AS lost_ms
    FROM compared_steps
    WHERE verdict IN ('straggler', 'suspect')
    GROUP BY run_id, step
),
losses AS (
    SELECT run_id, ordered_sum(lost_ms) AS time_lost_ms
    FROM step_losses
    GROUP BY run_id
),
culprits AS (
    SELECT run_id, rank, count(*) AS steps
    FROM compared_steps
    WHERE culprit
    GROUP BY run_id, rank
),
stability AS (
    SELECT run_id, ratio(max(steps), sum(steps)) AS culprit_stability_ratio
    FROM culprits
    GROUP BY run_id
)
SELECT
    c.run_id,
    c.straggler_rank,
    s.culprit_stability_ratio,
    coalesce(l.time_lost_ms, 0) AS time_lost_ms,
    r.world_size * coalesce(l.time_lost_ms, 0) / 3.6e6 AS gpu_hours_lost,
    CASE WHEN r.world_size IS NULL THEN 'world_size_unknown' END AS reason
FROM compared AS c
JOIN runs AS r USING (run_id)
LEFT JOIN losses AS l USING (run_id)
LEFT JOIN stability AS s USING (run_id)
