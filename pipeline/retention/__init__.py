"""Remove data of a lake: dropped runs, and unused files."""

from pipeline.retention.collect import collect, leftovers_table
from pipeline.retention.drop import Doomed, choose_old, choose_runs, doomed_table, drop

__all__ = [
    "Doomed",
    "choose_old",
    "choose_runs",
    "collect",
    "doomed_table",
    "drop",
    "leftovers_table",
]
