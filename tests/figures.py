"""Headline figures of the models and where their reasons stand; which of them lack one."""

from __future__ import annotations

import duckdb

# Model, reason column -> figures that are NULL only with that reason.
FIGURES = {
    ("step_stats", "reason"): ("step_ms",),
    ("step_stats", "stages_reason"): ("busiest_stage", "imbalance_ratio"),
    ("clock_offsets", "reason"): ("offset_ms", "drift_ppm", "uncertainty_ms"),
    ("rank_bubbles", "reason"): ("window_ms", "bubble_ratio", "bubble_with_wait_ratio"),
    ("phase_bubbles", "reason"): ("bubble_ratio",),
    ("stage_bubbles", "reason"): ("bubble_ratio", "bubble_over_ideal_ratio"),
    ("stage_balance", "reason"): ("share_ratio", "imbalance_ratio"),
    ("stage_rebalance", "reason"): ("gain_ratio",),
    ("collective_bandwidth", "reason"): ("busbw_p50_gbps",),
    ("collective_calls", "reason"): ("busbw_gbps",),
    ("collective_calls", "skew_reason"): ("skew_ms", "wait_ms"),
    ("straggler_ranks", "reason"): ("slowdown",),
    ("straggler_ranks", "wait_reason"): ("in_op_wait_ms",),
    ("straggler_steps", "reason"): ("slowdown",),
    ("layer_stats", "reason"): ("mean_ms",),
    ("layer_stats", "trend_reason"): ("trend",),
    ("layer_steps", "reason"): ("deviation_ratio",),
    ("layer_stages", "reason"): ("micro_batch_ms", "layer_share_ratio"),
    ("workload_comm", "reason"): ("needed_gbps",),
}


def unexplained(con: duckdb.DuckDBPyConnection, runs: str = "true") -> dict[str, int]:
    """Rows without a figure and without a reason, by figure, where there are any."""
    found = {}
    for (model, reason), figures in FIGURES.items():
        for figure in figures:
            where = f"{figure} IS NULL AND {reason} IS NULL AND {runs}"
            row = con.execute(f"SELECT count(*) FROM {model} WHERE {where}").fetchone()
            if row and row[0]:
                found[f"{model}.{figure}"] = row[0]
    return found
