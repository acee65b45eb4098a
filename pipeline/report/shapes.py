"""How the page shows each relation: which rows and columns, in which order, and what if none."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.report.shape import OVER_STEPS, STEADY, Shape, mean_of_steps
from pipeline.report.table_shapes import TABLES

_PARTS = (
    "compute_ms",
    "in_op_comm_ms",
    "p2p_recv_ms",
    "p2p_send_ms",
    "finalize_ms",
    "other_step_ms",
    "gap_ms",
)
_WINDOW = (
    "bubble_ratio",
    "theory_bubble_ratio",
    "bubble_with_wait_ratio",
    "bubble_over_ideal_ratio",
    "window_ms",
    *_PARTS,
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

# In the order of the page. Other models whose header has a title follow, as they are.
SHAPES: Mapping[str, Shape] = {
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
    "stage_bubbles": Shape(
        columns=("stage", "basis", "ranks", *_STAGE, "reason"),
        order="basis, stage",
        headline="bubble_ratio",
        empty="The number of pipeline stages is unknown, and no operations of ranks tell it.",
        bar="bubble_ratio",
        mark="theory_bubble_ratio",
        note=f"{OVER_STEPS} The line in a bar is theory.",
        # Theory is the same for every stage, and stands beside figures where there are any.
        source=f"""
            SELECT * FROM (
                SELECT
                    b.run_id, b.basis, max(b.ranks) AS ranks, {mean_of_steps(_STAGE)},
                    CASE WHEN NOT starts_with(b.basis, 'theory') THEN b.stage END AS stage
                FROM stage_bubbles AS b
                {STEADY}
                GROUP BY ALL
            )
            QUALIFY basis <> 'theory' OR NOT bool_or(
                basis IN ('measured', 'modelled') AND bubble_ratio IS NOT NULL
            ) OVER (PARTITION BY run_id)
        """,
    ),
    "rank_bubbles": Shape(
        columns=("rank", "stage", *_WINDOW, "reason"),
        order="rank",
        pick="bubble_ratio DESC NULLS LAST, rank",
        headline="window_ms",
        parts=_PARTS,
        whole="window_ms",
        empty="The input has no operations of ranks.",
        note=OVER_STEPS,
        source=f"""
            SELECT b.run_id, b.rank, b.stage, {mean_of_steps(_WINDOW)}
            FROM rank_bubbles AS b
            {STEADY}
            GROUP BY ALL
        """,
    ),
    "phase_bubbles": Shape(
        columns=("stage", "phase", *_PHASE, "reason"),
        order="stage, array_position(['warmup', 'steady', 'cooldown'], phase)",
        headline="bubble_ratio",
        empty="The input has no operations of ranks.",
        bar="bubble_ratio",
        note="Means over the stage's ranks and the run's steps, warm-up left out.",
        source=f"""
            SELECT b.run_id, b.stage, b.phase, {mean_of_steps(_PHASE)}
            FROM phase_bubbles AS b
            {STEADY}
            GROUP BY ALL
        """,
    ),
    "stage_balance": Shape(
        columns=(
            "stage",
            "micro_batch_ms",
            "share_ratio",
            "imbalance_ratio",
            "busiest_steps",
            "steps",
            "reason",
        ),
        order="stage",
        headline="micro_batch_ms",
        empty="The input has no times of stages.",
        bar="micro_batch_ms",
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
    ),
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
    "stage_rebalance": Shape(
        columns=(
            "stage",
            "micro_batch_ms",
            "current_micro_batch_ms",
            "first_layer",
            "last_layer",
            "layers",
            "gain_ratio",
            "covered_ratio",
            "bottleneck_layer",
            "reason",
        ),
        order="stage",
        headline="micro_batch_ms",
        empty="The input has no times of layers.",
        bar="micro_batch_ms",
    ),
    "layer_stages": Shape(
        columns=(
            "stage",
            "layer",
            "layer_kind",
            "p50_ms",
            "micro_batch_ms",
            "stage_share_ratio",
            "layer_share_ratio",
            "reason",
        ),
        order="stage, layer_index NULLS LAST, layer",
        pick="stage_share_ratio DESC NULLS LAST, stage, layer",
        headline="p50_ms",
        rows=128,
        empty="The input has no times of layers.",
        bar="stage_share_ratio",
    ),
    "layer_stats": Shape(
        columns=(
            "layer",
            "layer_kind",
            "steps",
            "mean_ms",
            "p50_ms",
            "p95_ms",
            "max_ms",
            "cv_ratio",
            "worst_step",
            "outlier_steps",
            "trend",
            "trend_ratio",
            "reason",
        ),
        order="layer_index NULLS LAST, layer",
        pick="mean_ms DESC NULLS LAST, layer",
        headline="mean_ms",
        rows=128,
        empty="The input has no times of layers.",
        bar="mean_ms",
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
    "workload_comm": Shape(
        columns=(
            "pass",
            "collective",
            "group_kind",
            "group_size",
            "calls",
            "bytes",
            "compute_ms",
            "needed_gbps",
            "unprofiled_rows",
            "reason",
        ),
        order="array_position(['forward', 'input_grad', 'weight_grad'], pass), collective,"
        " group_kind",
        pick="bytes DESC, pass, collective, group_kind",
        headline="calls",
        empty="The input is no workload plan, or a plan without communication.",
        bar="needed_gbps",
    ),
    **TABLES,
}
