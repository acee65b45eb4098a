"""Order incidents alike wherever they are listed."""

MOST_URGENT_FIRST = (
    "open DESC, level = 3, cost_gpu_hours_per_day DESC NULLS LAST, level, last_seen DESC, incident"
)
"""Columns of `incidents` to order by: notices last, then what costs most."""
