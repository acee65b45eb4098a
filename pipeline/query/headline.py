"""Which figures of a run stand in a list of runs."""

from __future__ import annotations

# Columns of `run_summary`, in the order they are shown; all of it is a query away.
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
