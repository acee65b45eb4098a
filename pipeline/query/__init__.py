"""Reads a lake's warehouse: a confined connection, queries, and how results are printed."""

from pipeline.query.results import FORMATS, write_result
from pipeline.query.warehouse import open_warehouse, run_query

__all__ = ["FORMATS", "open_warehouse", "run_query", "write_result"]
