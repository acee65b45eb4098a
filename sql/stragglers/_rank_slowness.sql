-- How slow a rank was against its peers over the run's steps, warm-up left out.
-- @grain run_id, rank
-- @column steps BIGINT steps | Steps with a peer.
-- @column slow_steps BIGINT steps | Steps in which the rank was slow.
-- @column culprit_steps BIGINT steps | Steps in which no slow rank exceeded its peers by more.
-- @column peers BIGINT ranks | Peers in the step that had most.
-- @column slowdown DOUBLE | Median over steps.
-- @column since_step INTEGER | As in straggler_ranks.
-- @column time_lost_ms DOUBLE ms | Own time over the peers' median, never more than the step took, summed over steps.
-- @column op_slowdowns STRUCT(op VARCHAR, kind VARCHAR, slowdown DOUBLE)[] | Forward and backward steps, or `all_kernels`: median of own time over the peers', over the slow steps where these are half of all or more, else over all; the one that exceeds its peers by more over all steps first.
WITH compared AS (
    SELECT
        s.*, t.step_ms,
        bool_or(s.slow AND s.in_verdict) OVER (PARTITION BY s.run_id, s.rank, s.step) AS slow_step
    FROM straggler_steps AS s
    LEFT JOIN step_stats AS t ON t.run_id = s.run_id AND t.step = s.step
    WHERE s.slowdown IS NOT NULL AND NOT s.warmup
),
verdicts AS (
    SELECT
        run_id,
        rank,
        count(*) AS steps,
        count(*) FILTER (slow) AS slow_steps,
        count(*) FILTER (culprit) AS culprit_steps,
        max(peers) AS peers,
        median(slowdown) AS slowdown,
        CASE WHEN min(step) FILTER (slow) > max(step) FILTER (NOT slow)
            THEN min(step) FILTER (slow)
        END AS since_step,
        ordered_sum(least(greatest(0, excess_ms), step_ms)) AS time_lost_ms
    FROM compared
    WHERE in_verdict
    GROUP BY run_id, rank
),
ops_compared AS (
    SELECT
        c.run_id, c.rank, c.op, c.kind,
        coalesce(
            median(c.slowdown) FILTER (c.slow_step AND 2 * v.slow_steps >= v.steps), median(c.slowdown)
        ) AS slowdown,
        ordered_sum(c.excess_ms) AS excess_ms
    FROM compared AS c
    LEFT JOIN verdicts AS v USING (run_id, rank)
    WHERE c.kind IN ('forward', 'backward', 'all_kernels')
    GROUP BY c.run_id, c.rank, c.op, c.kind
),
by_op AS (
    SELECT
        run_id,
        rank,
        list(
            struct_pack(op := op, kind := kind, slowdown := slowdown)
            ORDER BY excess_ms DESC, op
        ) AS op_slowdowns
    FROM ops_compared
    GROUP BY run_id, rank
)
SELECT v.*, o.op_slowdowns
FROM verdicts AS v
LEFT JOIN by_op AS o USING (run_id, rank)
