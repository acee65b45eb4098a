"""Remove data of a lake: dropped runs, and unused files."""

from tracelake.warehouse.retention.collect import collect, leftovers_table
from tracelake.warehouse.retention.drop import (
    DropCandidate,
    choose_old,
    choose_runs,
    doomed_table,
    drop,
)

__all__ = [
    "DropCandidate",
    "choose_old",
    "choose_runs",
    "collect",
    "doomed_table",
    "drop",
    "leftovers_table",
]
