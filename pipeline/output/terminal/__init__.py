"""Print to the terminal: one run, a comparison of two runs, a table of many."""

from pipeline.output.terminal.changes import read_changes
from pipeline.output.terminal.diff import print_changes
from pipeline.output.terminal.facts import read_run
from pipeline.output.terminal.page import Page
from pipeline.output.terminal.reading import named_run, run_before
from pipeline.output.terminal.runs import Choice, draw_runs, runs_sql
from pipeline.output.terminal.show import print_run

__all__ = [
    "Choice",
    "Page",
    "draw_runs",
    "named_run",
    "print_changes",
    "print_run",
    "read_changes",
    "read_run",
    "run_before",
    "runs_sql",
]
