"""Define how the page shows each relation: rows, columns, order, and the text if it is empty."""

from __future__ import annotations

from collections.abc import Mapping

from tracelake.output.html.layer_shapes import LAYERS
from tracelake.output.html.links import OF_RATED, PAGE_RATES
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.output.html.shape import OVER_STEPS, STEADY, WINDOW_PARTS, Shape, mean_of_steps
from tracelake.output.html.table_shapes import TABLES

_WINDOW = (
    "bubble_ratio",
    "theory_bubble_ratio",
    "bubble_with_wait_ratio",
    "bubble_over_ideal_ratio",
    "window_ms",
    *WINDOW_PARTS,
    "p2p_recv_wait_ms",
    "p2p_recv_transfer_ms",
    "in_op_wait_ms",
    "in_op_overlap_ms",
)
_PHASE = ("bubble_ratio", "idle_ms", "busy_ms", "phase_ms")
_STAGE = (
    "bubble_ratio",
    "bubble_min_ratio",
    "bubble_max_ratio",
    "theory_bubble_ratio",
    "bubble_over_ideal_ratio",
    "theory_over_ideal_ratio",
    "covered_ratio",
)

# In the order of the page. Other models whose header has a title follow unchanged.
SHAPES: Mapping[str, Shape] = {
    "ops": Shape(
        title="Pipeline timeline",
        columns=(
            "rank",
            "stage",
            "step",
            "op",
            "micro_batch",
            "phase",
            "duration_ns",
            "sources.path",
            "line",
        ),
        order="duration_ns DESC, rank, seq",
        headline="duration_ns",
        rows=12,
        empty="The input has no operations of ranks.",
        note="The table has the longest operations and their lines in the input.",
        source="""
            SELECT o.*, concat_ws('/', s.path, s.member) AS path
            FROM ops AS o LEFT JOIN sources AS s USING (run_id, source_id)
        """,
    ),
    "rank_bubbles": Shape(
        columns=("rank", "stage", *_WINDOW, "reason"),
        order="rank",
        pick="bubble_ratio DESC NULLS LAST, rank",
        headline="window_ms",
        parts=tuple(WINDOW_PARTS),
        whole="window_ms",
        empty="The input has no operations of ranks.",
        note=OVER_STEPS,
        source="FROM rank_summary",
    ),
    "stage_bubbles": Shape(
        columns=("stage", "basis", "ranks", *_STAGE, "reason"),
        order="basis, stage",
        headline="bubble_ratio",
        empty="The number of pipeline stages is unknown, and no operations of ranks show it.",
        bar="bubble_ratio",
        mark="theory_bubble_ratio",
        note=f"{OVER_STEPS} The line in a bar is theory.",
        # Theory is the same for every stage, and stands beside figures where there are any.
        source="""
            SELECT DISTINCT
                run_id, basis, ranks, bubble_ratio, bubble_min_ratio, bubble_max_ratio,
                theory_bubble_ratio, bubble_over_ideal_ratio, theory_over_ideal_ratio,
                covered_ratio,
                CASE WHEN NOT starts_with(basis, 'theory') THEN stage END AS stage,
                CASE WHEN starts_with(basis, 'theory') THEN coalesce(reason, window_reason)
                    ELSE reason
                END AS reason
            FROM stage_summary
            UNION ALL BY NAME
            SELECT
                run_id, 'modelled' AS basis, stage, modelled_bubble_ratio AS bubble_ratio,
                theory_bubble_ratio, theory_over_ideal_ratio
            FROM stage_summary
            WHERE basis = 'measured' AND modelled_bubble_ratio IS NOT NULL
            UNION ALL BY NAME
            SELECT DISTINCT
                run_id, basis, bubble_ratio, theory_bubble_ratio, bubble_over_ideal_ratio,
                theory_over_ideal_ratio, reason
            FROM stage_bubbles
            WHERE basis = 'theory_simulator'
        """,
    ),
    "phase_bubbles": Shape(
        columns=("stage", "phase", *_PHASE, "reason"),
        order="stage, array_position(['warmup', 'steady', 'cooldown'], phase)",
        headline="bubble_ratio",
        empty="The input has no operations of ranks.",
        bar="bubble_ratio",
        note="Means over the stage's ranks and the run's steps, without warm-up.",
        source=f"""
            SELECT b.run_id, b.stage, b.phase, {mean_of_steps(_PHASE)}
            FROM phase_bubbles AS b
            {STEADY}
            GROUP BY ALL
        """,
    ),
    "step_changes": Shape(
        columns=("op", "kind", "stage", "baseline_ms", "run_ms", "change_ms", "share_ratio"),
        order="op = 'rest', abs(change_ms) DESC, op, kind, stage NULLS LAST",
        rows=16,
        empty="Fewer than three runs of the baseline have operations with a pipeline window.",
    ),
    "op_shares": Shape(
        columns=("op", "kind", "stage", "share_ms", "share_ratio"),
        order="share_ms DESC, op, kind, stage NULLS LAST",
        rows=16,
        empty="The input has no operations of ranks with a pipeline window.",
        bar="share_ratio",
    ),
    "straggler_ranks": Shape(
        columns=(
            "rank",
            "stage",
            "host",
            "device",
            "verdict",
            "slowdown",
            "slow_steps",
            "culprit_steps",
            "steps",
            "time_lost_ms",
            "in_op_wait_ms",
            "reason",
            "evidence",
        ),
        order="rank",
        pick="array_position(['straggler', 'suspect', 'ok'], verdict) NULLS LAST,"
        " slowdown DESC NULLS LAST, rank",
        headline="slowdown",
        empty="The input has no operations of ranks.",
        bar="time_lost_ms",
    ),
    "collective_bandwidth": Shape(
        columns=(
            "collective",
            "group_kind",
            "dtype",
            "size_bytes",
            "size_convention",
            "group_size",
            "overlapped",
            "calls",
            "coarse_calls",
            "time_p50_ms",
            "time_p95_ms",
            "algbw_p50_gbps",
            "busbw_p50_gbps",
            "time_basis",
            "reason",
        ),
        order="collective, group_kind, dtype, size_bytes, overlapped",
        pick="calls * time_p50_ms DESC NULLS LAST, collective, group_kind, dtype, size_bytes,"
        " overlapped",
        headline="time_p50_ms",
        rows=40,
        empty="The input has no communication of ranks.",
        bar="busbw_p50_gbps",
        source=f"""
            SELECT b.*, CASE WHEN l.given THEN b.busbw_p50_gbps / l.gbps END AS of_rated_ratio
            FROM collective_bandwidth AS b
            LEFT JOIN {PAGE_RATES} AS l USING (run_id, group_kind)
        """,
        own=(OF_RATED,),
    ),
    "step_stats": Shape(
        columns=(
            "step",
            "step_ms",
            "loss",
            "busiest_stage",
            "imbalance_ratio",
            "warmup",
            "outlier",
            "reason",
            "stages_reason",
        ),
        order="step",
        pick="outlier DESC NULLS LAST, step_ms DESC NULLS LAST, step",
        headline="step_ms",
        rows=32,
        empty="The input has no steps.",
        bar="step_ms",
    ),
    "run_history": Shape(
        columns=(
            "verdict",
            "baseline_runs",
            "step_p50_ms",
            "step_p50_ms_baseline",
            "step_p50_ms_change_ratio",
            "step_p50_ms_allowed_ratio",
            "bubble_ratio",
            "bubble_ratio_baseline",
            "bubble_ratio_change_ratio",
            "busbw_gbps",
            "busbw_gbps_baseline",
            "busbw_gbps_change_ratio",
            "stragglers",
            "stragglers_baseline",
            "regressions",
            "reason",
        ),
        order="run_id",
        headline="compared",
        source="""
            SELECT *, nullif(verdict, 'not_comparable') AS compared FROM run_history
        """,
        empty="No figure of the run can be compared.",
    ),
    **LAYERS,
    "clock_offsets": Shape(
        columns=(
            "clock",
            "offset_ms",
            "drift_ppm",
            "uncertainty_ms",
            "basis",
            "links",
            "reason",
        ),
        order="links NULLS LAST, clock",
        headline="offset_ms",
        empty="The input has no operations of ranks.",
        source="SELECT DISTINCT * EXCLUDE (rank) FROM clock_offsets",
    ),
    **TABLES,
}

# Of all runs of the page together.
FLEET: Mapping[str, Shape] = {
    "incidents": Shape(
        columns=(
            "subject",
            "kind",
            "severity",
            "since",
            "last_seen",
            "slow_runs",
            "runs",
            "cost_gpu_hours_per_day",
            "cause",
            "evidence",
            "advice",
            "config",
            "incident",
        ),
        order="open DESC, cost_gpu_hours_per_day DESC NULLS LAST, last_seen DESC, incident",
        rows=24,
        empty="No problems found.",
        source=f"""
            SELECT *
            FROM incidents
            WHERE incident IN (SELECT incident FROM findings SEMI JOIN {PAGE_RUNS} USING (run_id))
                OR (runs_unit = 'test' AND latest_run IN (SELECT run_id FROM {PAGE_RUNS}))
        """,
    ),
    "straggler_history": Shape(
        columns=(
            "subject",
            "host",
            "device",
            "rank",
            "verdict",
            "slow_runs",
            "runs",
            "slowdown",
            "time_lost_ms",
            "gpu_hours_lost",
            "last_slow_run",
            "evidence",
            "config",
        ),
        order="array_position(['recurring', 'ok'], verdict) NULLS LAST, gpu_hours_lost DESC"
        " NULLS LAST, slow_runs DESC, config, subject",
        rows=24,
        empty="No rank was slow in any run of these configurations.",
        source=f"""
            FROM straggler_history
            WHERE verdict = 'recurring'
                AND config IN (SELECT config FROM runs SEMI JOIN {PAGE_RUNS} USING (run_id))
        """,
        bar="slow_runs",
    ),
}
