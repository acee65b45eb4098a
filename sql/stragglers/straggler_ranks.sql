-- Whether a rank computes slower than the peers that do the same work, and what was seen.
-- Straggler: slow in at least half of the steps and in 3 or more. Suspect: slow in half of too few
-- steps, or beside one peer only.
-- @report Slow ranks
-- @grain run_id, rank
-- @column verdict VARCHAR | straggler, suspect, ok or not_comparable.
-- @column slowdown DOUBLE | Own compute over the median of the peers, median over the run's steps.
-- @column slow_steps BIGINT steps | Steps in which the rank was slow: 1.10 times its peers or more, and over 1 ms.
-- @column steps BIGINT steps | Steps compared, warm-up left out.
-- @column time_lost_ms DOUBLE ms | Own compute over the peers' median, summed over steps, per step at most the step's time.
-- @column relative_score DOUBLE | 1 / slowdown; NVIDIA's resiliency extension calls a rank a straggler below 0.75.
-- @column culprit_steps BIGINT steps | Steps in which it exceeded its peers by more than any other slow rank of the job did.
-- @column peers BIGINT ranks | Peers in the step that had most.
-- @column in_op_wait_ms DOUBLE ms | What this rank waited for others inside its operations; a straggler waits least. Shown beside the verdict, not part of it.
-- @column waiting_rank INTEGER | Rank of the same stage that waited longest.
-- @column waiting_rank_ms DOUBLE ms | How long that rank waited inside its operations.
-- @column wait_reason VARCHAR | Why it is not known what the rank waited.
-- @column least_waiting BOOLEAN | Waited less inside its operations than every other rank of its stage: the other side of being slow, shown beside the verdict. NULL where the waiting of one is not known.
-- @column since_step INTEGER | First slow step of a rank that became slow within the run: slow in no step before, and in every one from then on.
-- @column evidence VARCHAR | What was seen, in one sentence, of stragglers and suspects.
-- @column slowest_op VARCHAR | The forward or the backward step, whichever exceeds its peers by more; all_kernels in a trace without passes.
-- @column slowest_kind VARCHAR | What slowest_op does: forward, backward or all_kernels.
-- @column forward_slowdown DOUBLE | Own time of forward steps over the median of the peers: the median over the slow steps where these are half of all or more, else over all; NULL where it was not compared.
-- @column backward_slowdown DOUBLE | The same of backward steps.
WITH ranks AS (
    SELECT s.run_id, s.rank, min(s.stage) AS stage, coalesce(r.simulated, false) AS simulated
    FROM _rank_steps AS s
    JOIN runs AS r USING (run_id)
    GROUP BY s.run_id, s.rank, r.simulated
),
uncompared AS (
    SELECT
        run_id, rank,
        coalesce(min(reason) FILTER (NOT warmup), 'warmup_only') AS reason
    FROM straggler_steps
    WHERE in_verdict
    GROUP BY run_id, rank
),
judged AS (
    SELECT
        r.run_id, r.rank, r.stage, r.simulated,
        s.* EXCLUDE (run_id, rank),
        list_filter(s.op_slowdowns, lambda o: o.kind = 'forward')[1].slowdown AS forward_slowdown,
        list_filter(s.op_slowdowns, lambda o: o.kind = 'backward')[1].slowdown AS backward_slowdown,
        CASE
            WHEN s.rank IS NULL THEN 'not_comparable'
            WHEN s.slow_steps = 0 OR 2 * s.slow_steps < s.steps THEN 'ok'
            WHEN s.slow_steps >= 3 AND s.peers > 1 THEN 'straggler'
            ELSE 'suspect'
        END AS verdict
    FROM ranks AS r
    LEFT JOIN _rank_slowness AS s ON s.run_id = r.run_id AND s.rank = r.rank AND NOT r.simulated
)
SELECT
    j.run_id, j.rank, j.stage, j.verdict, j.slowdown,
    coalesce(j.slow_steps, 0) AS slow_steps,
    coalesce(j.steps, 0) AS steps,
    j.time_lost_ms,
    ratio(1, j.slowdown) AS relative_score,
    CASE
        WHEN j.simulated THEN 'simulated'
        WHEN j.verdict = 'not_comparable' AND j.stage IS NULL THEN 'topology_unknown'
        WHEN j.verdict = 'not_comparable' THEN coalesce(u.reason, 'no_peer')
        WHEN j.verdict = 'suspect' AND j.peers = 1 THEN 'one_peer'
        WHEN j.verdict = 'suspect' THEN 'few_steps'
    END AS reason,
    p.host,
    p.device,
    coalesce(j.culprit_steps, 0) AS culprit_steps,
    coalesce(j.peers, 0) AS peers,
    ns_to_ms(w.wait_ns) AS in_op_wait_ms,
    CASE
        WHEN j.simulated THEN 'simulated'
        WHEN w.wait_ns IS NULL THEN 'peer_not_seen'
    END AS wait_reason,
    w.least_waiting,
    CASE WHEN w.waiting_rank_ns > 0 THEN w.waiting_rank END AS waiting_rank,
    CASE WHEN w.waiting_rank_ns > 0 THEN ns_to_ms(w.waiting_rank_ns) END AS waiting_rank_ms,
    CASE WHEN j.verdict IN ('straggler', 'suspect') THEN concat(
        rank_placed(j.rank, j.stage, p.host, p.device),
        ': ',
        concat_ws(
            '; ',
            concat_ws(
                ', ',
                format(
                    '{} took {:.2f} times as long as {}',
                    j.op_slowdowns[1].op, j.op_slowdowns[1].slowdown, peers_named(j.peers)
                ),
                format('{} {:.2f} times', j.op_slowdowns[2].op, j.op_slowdowns[2].slowdown)
            ),
            concat(
                format('slow in {} of {}', j.slow_steps, j.steps),
                CASE j.steps WHEN 1 THEN ' step' ELSE ' steps' END,
                ', since step ' || j.since_step
            ) || CASE j.culprit_steps
                WHEN j.slow_steps THEN ''
                WHEN 0 THEN ', but another rank was slower'
                ELSE format(
                    ', but another rank was slower in {} of them', j.slow_steps - j.culprit_steps
                )
            END,
            CASE WHEN w.waiting_rank_ns >= 50000 THEN format(
                'rank {} waited {:.1f} ms in communication',
                w.waiting_rank, ns_to_ms(w.waiting_rank_ns)
            ) END
        ),
        '.'
    ) END AS evidence,
    j.op_slowdowns[1].op AS slowest_op,
    j.op_slowdowns[1].kind AS slowest_kind,
    j.forward_slowdown, j.backward_slowdown, j.since_step
FROM judged AS j
LEFT JOIN uncompared AS u USING (run_id, rank)
LEFT JOIN _rank_waits AS w ON w.run_id = j.run_id AND w.rank = j.rank AND NOT j.simulated
JOIN _rank_places AS p USING (run_id, rank)
