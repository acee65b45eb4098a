"""Define how the page shows stages, their layers, and plans of them."""

from __future__ import annotations

from collections.abc import Mapping

from tracelake.output.html.shape import IN_MODEL, Shape

LAYERS: Mapping[str, Shape] = {
    "stage_balance": Shape(
        columns="stage, micro_batch_ms, share_ratio, imbalance_ratio, busiest_steps, steps, reason",
        order="stage",
        headline="micro_batch_ms",
        empty="The input has no stage times.",
        bar="micro_batch_ms",
    ),
    "stage_rebalance": Shape(
        columns=(
            "stage, micro_batch_ms, current_micro_batch_ms, first_layer, last_layer, layers, "
            "gain_ratio, covered_ratio, bottleneck_layer, reason"
        ),
        order="stage",
        headline="micro_batch_ms",
        empty="The input has no layer times.",
        bar="micro_batch_ms",
    ),
    "layer_stages": Shape(
        columns=(
            "stage, layer, layer_kind, p50_ms, micro_batch_ms, stage_share_ratio, "
            "layer_share_ratio, reason"
        ),
        order=f"stage, {IN_MODEL}",
        pick="stage_share_ratio DESC NULLS LAST, stage, layer",
        headline="p50_ms",
        rows=128,
        empty="The input has no layer times.",
        bar="stage_share_ratio",
    ),
    "layer_stats": Shape(
        columns=(
            "layer, layer_kind, steps, mean_ms, p50_ms, p95_ms, max_ms, cv_ratio, worst_step, "
            "outlier_steps, trend, trend_ratio, reason"
        ),
        order=IN_MODEL,
        pick="mean_ms DESC NULLS LAST, layer",
        headline="mean_ms",
        rows=128,
        empty="The input has no layer times.",
        bar="mean_ms",
    ),
    "workload_comm": Shape(
        columns=(
            "pass, collective, group_kind, group_size, calls, bytes, compute_ms, needed_gbps, "
            "unprofiled_rows, reason"
        ),
        order="array_position(['forward', 'input_grad', 'weight_grad'], pass), collective,"
        " group_kind",
        pick="bytes DESC, pass, collective, group_kind",
        headline="calls",
        empty="The input is not a workload plan, or a plan without communication.",
        bar="needed_gbps",
    ),
    "plan_vs_measured": Shape(
        columns=(
            "plan_run_id, kind, pass, collective, group_kind, layer_kind, planned_bytes, "
            "measured_bytes, bytes_error_ratio, planned_compute_ms, measured_compute_ms, "
            "compute_error_ratio, reason"
        ),
        order="kind, pass, collective, group_kind, layer_kind",
        headline="plan_run_id",
        rows=48,
        empty="No plan in the lake has this run's configuration.",
    ),
}
