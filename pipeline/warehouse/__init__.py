"""Query a lake's warehouse: a confined connection, queries, and printed results."""

from tracelake.warehouse.examples import example, examples_table
from tracelake.warehouse.names import meant_run, resolve_run, run_before
from tracelake.warehouse.parameters import Parameters, read_value, split_parameters
from tracelake.warehouse.reopening import ask, reopening
from tracelake.warehouse.results import FORMATS, write_result
from tracelake.warehouse.running import run_query
from tracelake.warehouse.shell import open_shell
from tracelake.warehouse.warehouse import open_warehouse

__all__ = [
    "FORMATS",
    "Parameters",
    "ask",
    "example",
    "examples_table",
    "meant_run",
    "open_shell",
    "open_warehouse",
    "read_value",
    "reopening",
    "resolve_run",
    "run_before",
    "run_query",
    "split_parameters",
    "write_result",
]
