"""Print to the terminal: one run, a comparison of two runs, a table of many."""

from tracelake.output.terminal.changes import read_changes
from tracelake.output.terminal.diff import print_changes
from tracelake.output.terminal.ending import print_ending, read_ending
from tracelake.output.terminal.facts import read_run
from tracelake.output.terminal.page import Page
from tracelake.output.terminal.runs import draw_runs, runs_sql
from tracelake.output.terminal.show import print_run

__all__ = [
    "Page",
    "draw_runs",
    "print_changes",
    "print_ending",
    "print_run",
    "read_changes",
    "read_ending",
    "read_run",
    "runs_sql",
]
