"""Define the figures of a run that a list of runs shows."""

from __future__ import annotations

# Columns of `run_summary`, in the order of display.
HEADLINE = (
    "run_id",
    "format",
    "run_date",
    "steps",
    "step_p50_ms",
    "bubble_ratio",
    "slowest_stage",
    "stragglers",
    "suspects",
    "gpu_hours_lost",
    "comm_ratio",
    "busbw_gbps",
    "coverage_ratio",
    "rejects",
)
