-- The rank of a run that became slow on the way and stayed so, too late for a verdict over the whole run.
-- It is slow in every step from one on, 3 or more, and in none of 3 or more before; of several the one that lost most.
-- @grain run_id
-- @column seen VARCHAR | What was seen, in half a sentence.
WITH late AS (
    SELECT *
    FROM straggler_ranks
    WHERE verdict = 'ok' AND peers > 1 AND slow_steps >= 3 AND steps - slow_steps >= 3
        AND since_step IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY time_lost_ms DESC, since_step, rank) = 1
),
slowed AS (
    SELECT k.run_id, median(s.slowdown) AS slowdown
    FROM late AS k
    JOIN straggler_steps AS s USING (run_id, rank)
    WHERE s.in_verdict AND s.step >= k.since_step
    GROUP BY k.run_id
)
SELECT
    k.run_id, k.rank, k.stage, k.host, k.device, k.since_step,
    format(
        '{} computes {:.2f} times as long as {} from step {} on',
        rank_placed(k.rank, k.stage, k.host, k.device), s.slowdown, peers_named(k.peers), k.since_step
    ) AS seen
FROM late AS k
JOIN slowed AS s USING (run_id)
