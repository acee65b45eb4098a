-- Findings about slow data loading of one run by itself: on all ranks alike, or on some that the others wait for.
-- @grain run_id, kind, subject
-- @column kind VARCHAR | data_loading.
-- @column severity VARCHAR | warning.
-- @column subject VARCHAR | The operation that loads data.
-- @column brief VARCHAR | The same in a few words.
-- @column lost_ratio DOUBLE | Time lost over the time of the steps.
-- @column cost_basis VARCHAR | replay where equal ranks would save it, else bound.
-- @column cost_bound VARCHAR | at_most for a bound from a log; at_least for a replay with fewer than 3 peers.
-- @column cause VARCHAR | data.
WITH alike AS (
    SELECT
        d.run_id,
        ordered_sum(d.share_ms) AS lost_ms,
        any_value(d.step_mean_ms) AS step_ms,
        arg_min(d.op, (-d.share_ms, d.op, d.stage)) AS op,
        arg_min(d.stage, (-d.share_ms, d.op, d.stage)) AS stage
    FROM op_shares AS d
    WHERE d.kind = 'data'
    GROUP BY d.run_id
),
loaders AS (
    SELECT s.run_id, s.op, s.rank, s.stage, any_value(r.tp) AS tp, ordered_mean(s.own_ms) AS own_ms
    FROM straggler_steps AS s
    JOIN runs AS r USING (run_id)
    WHERE s.kind = 'data' AND NOT s.warmup
    GROUP BY s.run_id, s.op, s.rank, s.stage
),
-- The first rank of a tensor-parallel group loads for the others: peers have the same place in theirs.
compared AS (
    SELECT
        *,
        quantile_cont(own_ms, 0.5) OVER peers AS peers_ms,
        count(*) OVER peers AS peers
    FROM loaders
    WINDOW peers AS (PARTITION BY run_id, op, stage, rank % coalesce(tp, 1))
),
slowest AS (
    SELECT *
    FROM compared
    WHERE peers >= 3
    QUALIFY row_number() OVER (PARTITION BY run_id, op ORDER BY own_ms - peers_ms DESC, rank) = 1
),
uneven AS (
    SELECT
        k.run_id, k.kind AS op, k.lost_ms, w.t_ms AS step_ms,
        CASE w.reason WHEN 'one_peer' THEN 'at_least' END AS cost_bound,
        m.own_ms, m.peers_ms, m.stage,
        CASE WHEN m.own_ms - m.peers_ms >= k.lost_ms / 2 THEN m.rank END AS rank
    FROM whatif_kinds AS k
    JOIN whatif_runs AS w USING (run_id)
    JOIN slowest AS m ON m.run_id = k.run_id AND m.op = k.kind
    WHERE m.tp = 1 OR m.own_ms - m.peers_ms >= k.lost_ms / 2
),
-- Of a log: what its loop says of the time that a step waited for data, the median over steps; of ranks the slowest.
waits AS (
    SELECT
        run_id,
        ns_to_ms((min(duration_ns) FILTER (2 * upto >= steps) + min(duration_ns) FILTER (2 * upto > steps)) / 2)
            AS lost_ms
    FROM (
        SELECT *, sum(covered) OVER (run ORDER BY duration_ns) AS upto, sum(covered) OVER run AS steps
        FROM (
            SELECT
                run_id, max(duration_ns) AS duration_ns, max(last_step - coalesce(first_step, last_step) + 1) AS covered
            FROM timings
            WHERE name = 'data' AND last_step > 1
            GROUP BY run_id, last_step
        )
        WINDOW run AS (PARTITION BY run_id)
    )
    GROUP BY run_id
    HAVING count(*) >= 5
),
seen AS (
    SELECT
        run_id, op, rank, stage, lost_ms, step_ms, cost_bound, 'bound' AS cost_basis,
        format(
            '{}: the job waited {:.1f} ms of a step of {:.1f} ms ({:.1f} %) for data{}.',
            op, lost_ms, step_ms, 100 * lost_ms / step_ms,
            coalesce(format('; rank {} {:.1f} ms, the fastest rank {:.1f} ms', rank, max_ms, min_ms), '')
        ) AS evidence
    FROM (
        -- Of what ranks do beside each other each has a share: others may hide it, or wait for it.
        FROM alike
        UNION ALL BY NAME
        SELECT
            w.run_id, 'data' AS op, t.slowest_rank AS rank, w.lost_ms, s.step_p50_ms AS step_ms,
            'at_most' AS cost_bound, t.max_ms, t.min_ms
        FROM waits AS w
        JOIN _run_spans AS s USING (run_id)
        LEFT JOIN timer_summary AS t
            ON t.run_id = w.run_id AND t.name = 'data' AND 2 * t.slowest_records >= t.records
            AND 2 * t.spread_ms >= w.lost_ms
    )
    UNION ALL BY NAME
    SELECT
        run_id, op, rank, stage, lost_ms, step_ms, cost_bound, 'replay' AS cost_basis,
        format(
            '{}: ranks that load as fast as their peers would save {:.1f} ms of a step of {:.1f} ms'
                || ' ({:.1f} %){}.',
            op, lost_ms, step_ms, 100 * lost_ms / step_ms,
            coalesce(
                format('; rank {} loads for {:.1f} ms a step, its peers for {:.1f} ms', rank, own_ms, peers_ms),
                '; no single rank is slow throughout'
            )
        ) AS evidence
    FROM uneven
)
SELECT
    run_id, 'data_loading' AS kind, 'warning' AS severity, op AS subject, rank, stage, op, evidence,
    format('{:.1f} % of a step', 100 * lost_ms / step_ms) AS brief,
    ratio(lost_ms, step_ms) AS lost_ratio, cost_basis, cost_bound, 'data' AS cause,
    coalesce(
        format('See what rank {} reads from: its workers, its storage, its shard.', rank),
        'Load data ahead of the step (more workers, prefetch, faster storage).'
    ) AS advice
FROM seen
WHERE lost_ms >= 0.05 * step_ms AND lost_ms > 1
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY lost_ms DESC, op, cost_basis) = 1
