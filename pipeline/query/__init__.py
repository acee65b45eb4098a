"""Query a lake's warehouse: a confined connection, queries, and printed results."""

from pipeline.query.examples import example, examples_table
from pipeline.query.names import meant_run, resolve_run
from pipeline.query.parameters import Parameters, read_value, split_parameters
from pipeline.query.reopening import ask, reopening
from pipeline.query.results import FORMATS, write_result
from pipeline.query.running import run_query
from pipeline.query.shell import open_shell
from pipeline.query.warehouse import open_warehouse

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
