-- What would give a run the figures that it lacks for a reason, in the run's own numbers; NULL where nothing does.
-- Every reason of schemas/reasons.toml is here.
-- @grain run_id, reason
-- @column remedy VARCHAR | What to do.
-- @column partly BOOLEAN | Worth doing for a few rows of a run; of other reasons it is normal that a few rows have them.
WITH proposed AS (
    SELECT
        *,
        set_pp IS NOT NULL OR set_world IS NOT NULL AS sizes_unknown,
        concat(
            'give --set ',
            CASE WHEN sizes_unknown THEN concat_ws(',', set_pp, set_world) ELSE 'pp=N,world_size=N' END,
            as_seen
        ) AS set_pipeline,
        coalesce(
            'add the files of ' || told['peers'],
            CASE WHEN sizes_unknown THEN 'add the files of the other ranks of the stage' END
        ) AS add_peers,
        format('ingest again when step {} of {} is there', steps['absent'], told['absent']) AS add_step
    FROM _remedy_facts
),
remedied AS (
    SELECT run_id, unnest([
        {'reason': 'simulated', 'remedy': 'trace every rank on its own device'},
        {'reason': 'topology_unknown', 'remedy': set_pipeline},
        {'reason': 'world_size_unknown', 'remedy': 'give --set ' || set_world || as_seen},
        {'reason': 'micro_batches_unknown', 'remedy': 'give --set micro_batches=N'},
        {'reason': 'group_size_unknown', 'remedy': 'give --set ' || set_groups || as_seen},
        {'reason': 'stages_missing', 'remedy': CASE
            WHEN traced AND told['stages'] IS NULL
                THEN coalesce(add_step, 'trace all stages over the same steps')
            WHEN traced THEN 'add the files of ' || told['stages']
            ELSE 'print the layer times of ' || told['stages']
        END},
        {'reason': 'peer_not_seen', 'remedy': coalesce(
            CASE WHEN NOT sizes_unknown THEN 'add the files of ' || told['ranks'] END,
            'give --set ' || set_groups || as_seen,
            add_step
        )},
        {'reason': 'no_peer', 'remedy': add_peers},
        {'reason': 'one_peer', 'remedy': add_peers},
        {'reason': 'clocks_not_aligned', 'remedy': CASE
            WHEN hosts_unnamed THEN 'name the hosts with --hosts or --run-pattern'
            WHEN contains(clock_hosts, ' and ') THEN
                format('trace a collective, or messages both ways, between hosts {}', clock_hosts)
            ELSE 'trace all ranks in one execution'
        END},
        {'reason': 'step_unfinished', 'remedy': CASE
            WHEN steps['cut'] IS NULL AND steps['torn'] IS NOT NULL THEN
                format('ingest a copy that has all lines of step {} of {}', steps['torn'], told['torn'])
            ELSE concat(
                'ingest again when ',
                coalesce(format('step {} of {}', steps['cut'], told['cut']), 'the step'),
                ' is whole'
            )
        END},
        {'reason': 'kernels_only', 'remedy':
            'annotate the passes of the pipeline (torch.distributed.pipelining does)'
        },
        {'reason': 'step_not_marked', 'remedy': 'call step() of the profiler after every step'},
        {'reason': 'step_shifted', 'remedy': concat(
            format('add the lines before step {} of {}', steps['shifted'], told['shifted']) || ', or ',
            'trace all ranks over the same steps'
        )},
        {'reason': 'stages_contradict', 'remedy':
            'give --set tp=N,pp=N,world_size=N that fit the printed stages'
        },
        {'reason': 'few_steps', 'remedy':
            format('log {} more {}', more_steps, CASE more_steps WHEN 1 THEN 'step' ELSE 'steps' END)
        },
        {'reason': 'warmup_only', 'remedy': 'log more than one step'},
        {'reason': 'several_steps', 'remedy': 'print a progress record for every step'},
        {'reason': 'includes_first_step', 'remedy': 'print a progress record for every step'},
        {'reason': 'batch_size_unknown', 'remedy': 'give --set global_batch_size=N'},
        {'reason': 'no_step_time', 'remedy': 'print the time per iteration'},
        {'reason': 'no_record', 'remedy': 'print a progress record for every step'},
        {'reason': 'no_stage_times', 'remedy': CASE
            WHEN traced THEN 'trace forward and backward steps'
            ELSE 'trace the ranks, or print the time of each layer'
        END},
        {'reason': 'not_profiled', 'remedy': 'generate the plan with profiled compute times'},
        {'reason': 'model_failed', 'remedy': 'mend the input: the finding says what is wrong'}
    ]) AS said
    FROM proposed
),
unremedied AS (
    SELECT run_id, unnest([
        -- The figure would mean nothing.
        'group_of_one', 'declared_size', 'overlaps_compute', 'forward_modules_only',
        'interleaved_schedule', 'fewer_layers_than_stages',
        -- The clocks do not tell it, whoever reads them.
        'below_clock_resolution', 'below_clock_uncertainty',
        -- The tracer prints no more.
        'phases_not_named', 'not_timed', 'size_unknown', 'replay_error', 'delays',
        'unknown_operation', 'stages_differ',
        -- There is nothing to find.
        'no_slowdown',
        -- Of models over several runs.
        'out_of_range', 'not_in_plan', 'not_measured', 'few_runs', 'figure_missing', 'run_undated',
        'config_unknown', 'run_incomplete',
        'no_pipeline', 'coarse_calls', 'duplicate',
        -- Tests of links are no part of the run.
        'hosts_unknown', 'not_tested', 'size_not_tested'
    ]) AS reason
    FROM proposed
)
SELECT
    run_id,
    said.reason,
    said.remedy,
    said.reason NOT IN (
        'warmup_only', 'several_steps', 'includes_first_step', 'batch_size_unknown', 'no_step_time',
        'no_record', 'no_stage_times'
    ) AS partly
FROM remedied
UNION ALL
SELECT run_id, reason, NULL, false
FROM unremedied
