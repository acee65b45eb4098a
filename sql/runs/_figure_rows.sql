-- How many rows of a run have each headline figure, and how many lack it for which reason.
-- @grain run_id, figure, missing, reason?
-- @column figure VARCHAR | Model and column.
-- @column missing BOOLEAN | The rows lack the figure.
-- @column times BIGINT rows | Rows.
SELECT
    -- These rows are so many that it takes half the time to count them by themselves.
    run_id, 'collective_calls.skew_ms' AS figure, skew_ms IS NULL AS missing, skew_reason AS reason, count(*) AS times
FROM collective_calls GROUP BY ALL
UNION ALL
SELECT run_id, figure, missing, reason, count(*)
FROM (
    SELECT run_id, 'step_stats.step_ms' AS figure, step_ms IS NULL AS missing, reason FROM step_stats
    UNION ALL
    SELECT run_id, 'step_stats.busiest_stage', busiest_stage IS NULL, stages_reason FROM step_stats
    UNION ALL
    SELECT run_id, 'clock_offsets.offset_ms', offset_ms IS NULL, reason FROM clock_offsets
    UNION ALL
    SELECT run_id, 'rank_bubbles.bubble_ratio', bubble_ratio IS NULL, reason FROM rank_bubbles
    UNION ALL
    SELECT run_id, 'rank_bubbles.bubble_with_wait_ratio', bubble_with_wait_ratio IS NULL, reason FROM rank_bubbles
    UNION ALL
    SELECT run_id, 'rank_bubbles.p2p_recv_wait_ms', p2p_recv_wait_ms IS NULL, coalesce(recv_reason, reason)
    FROM rank_bubbles
    UNION ALL
    SELECT run_id, 'phase_bubbles.bubble_ratio', bubble_ratio IS NULL, reason FROM phase_bubbles
    UNION ALL
    SELECT run_id, concat('stage_bubbles.bubble_ratio, ', basis), bubble_ratio IS NULL, reason
    FROM stage_bubbles WHERE basis <> 'measured'
    UNION ALL
    SELECT run_id, 'stage_balance.share_ratio', share_ratio IS NULL, reason FROM stage_balance
    UNION ALL
    SELECT run_id, 'stage_rebalance.gain_ratio', gain_ratio IS NULL, reason FROM stage_rebalance
    UNION ALL
    SELECT run_id, 'collective_bandwidth.busbw_p50_gbps', busbw_p50_gbps IS NULL, reason FROM collective_bandwidth
    UNION ALL
    SELECT run_id, 'straggler_ranks.slowdown', slowdown IS NULL, reason FROM straggler_ranks
    UNION ALL
    SELECT
        s.run_id, 'run_summary.gpu_hours_lost', l.gpu_hours_lost IS NULL,
        CASE WHEN l.run_id IS NULL THEN s.reason ELSE l.reason END
    FROM straggler_ranks AS s LEFT JOIN _run_losses AS l ON l.run_id = s.run_id
    UNION ALL
    -- Of a run whose steps have times at all.
    SELECT run_id, 'run_summary.step_p50_ms', warmup, CASE WHEN warmup THEN 'warmup_only' END
    FROM step_stats WHERE step_ms IS NOT NULL
    UNION ALL
    SELECT run_id, 'layer_stats.mean_ms', mean_ms IS NULL, reason FROM layer_stats
    UNION ALL
    SELECT run_id, 'layer_stats.trend', trend IS NULL, trend_reason FROM layer_stats
    UNION ALL
    SELECT run_id, 'layer_steps.deviation_ratio', deviation_ratio IS NULL, reason FROM layer_steps
    UNION ALL
    SELECT run_id, 'layer_stages.micro_batch_ms', micro_batch_ms IS NULL, reason FROM layer_stages
    UNION ALL
    SELECT run_id, 'layer_stages.layer_share_ratio', layer_share_ratio IS NULL, reason FROM layer_stages
    UNION ALL
    SELECT run_id, 'workload_comm.needed_gbps', needed_gbps IS NULL, reason FROM workload_comm
    UNION ALL
    -- Of a run that is left out it is not known which figures its data could have given.
    SELECT
        run_id,
        unnest([
            'step_stats.step_ms', 'step_stats.busiest_stage', 'rank_bubbles.bubble_ratio',
            'straggler_ranks.slowdown', 'collective_bandwidth.busbw_p50_gbps', 'layer_stats.mean_ms',
            'workload_comm.needed_gbps', 'coverage.coverage_ratio'
        ]),
        true, CASE WHEN failed_model <> '' THEN 'model_failed' END AS reason
    FROM model_failures
    UNION ALL
    SELECT
        run_id, 'coverage.coverage_ratio', r.ranks_expected IS NULL,
        CASE WHEN m.traced THEN 'world_size_unknown' ELSE 'topology_unknown' END
    FROM _missing AS m JOIN runs AS r USING (run_id)
    UNION ALL
    SELECT run_id, 'coverage.missing_ranks', true, CASE WHEN m.traced THEN 'out_of_range' END
    FROM _missing AS m JOIN runs AS r USING (run_id)
    WHERE m.traced AND m.missing_ranks IS NULL AND r.world_size IS NOT NULL
    UNION ALL
    SELECT run_id, 'stage_bubbles.bubble_ratio, theory', true, CASE WHEN r.pp > 0 THEN 'out_of_range' END
    FROM _pipelines AS p JOIN runs AS r USING (run_id)
    WHERE p.stages IS NULL AND r.pp IS NOT NULL
)
GROUP BY ALL
