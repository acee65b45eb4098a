"""Query a lake's warehouse: a confined connection, queries, and printed results."""

from pipeline.warehouse.examples import example, examples_table
from pipeline.warehouse.names import meant_run, resolve_run
from pipeline.warehouse.parameters import Parameters, read_value, split_parameters
from pipeline.warehouse.reopening import ask, reopening
from pipeline.warehouse.results import FORMATS, write_result
from pipeline.warehouse.running import run_query
from pipeline.warehouse.shell import open_shell
from pipeline.warehouse.warehouse import open_warehouse

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
    "run_query",
    "split_parameters",
    "write_result",
]
