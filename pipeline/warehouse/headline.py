"""Define what outputs show of runs and incidents, and in which order."""

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
# Columns of `incidents` to order by: notices last, then what costs most.
MOST_URGENT_FIRST = (
    "open DESC, level = 3, cost_gpu_hours_per_day DESC NULLS LAST, level, last_seen DESC, incident"
)
# Parts that add up to a pipeline window: the busy ones come first, the rest is the bubble.
WINDOW_PARTS = (
    *("compute_ms", "data_ms", "in_op_comm_ms"),
    *("p2p_recv_ms", "p2p_send_ms", "finalize_ms", "other_step_ms", "gap_ms"),
)


def may_run(until: object) -> str:
    """Return what is said of a run with this `running_until`, in place of problems."""
    return "" if until is None else "may still run"
