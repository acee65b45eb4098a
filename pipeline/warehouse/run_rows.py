"""Select the rows of one run from the part files that hold it."""

from __future__ import annotations

import duckdb

from tracelake.base.errors import UsageError
from tracelake.lake import Lake
from tracelake.models import relation_columns
from tracelake.models.base import copy_of, literal, quoted, select_parts
from tracelake.models.catalog import catalog
from tracelake.models.parts import read_list, relation_of, select_model_parts
from tracelake.models.state import parts_of_run
from tracelake.schema.tables import PARTITION_KEY, tables


def run_rows(con: duckdb.DuckDBPyConnection, lake: Lake, name: str, run_id: str | None) -> str:
    """Return SELECT of a table or model, whole or of one run, for a connection of `open_warehouse`.

    It names only the part files that hold the run: a view of all files opens each.

    Raises:
        UsageError: There is no such relation, or it has no rows per run.
    """
    columns = relation_columns(name)
    if run_id is None:
        return f"FROM {quoted(name)}"
    if PARTITION_KEY not in {column.name for column in columns}:
        raise UsageError(f"{name} has no rows per run", hint="leave out run")
    whole = f"FROM {quoted(name)} WHERE {quoted(PARTITION_KEY)} = {literal(run_id)}"
    if name in catalog().in_parts:
        listed = read_list(con).items()
        parts = [part for part, runs in listed if relation_of(part) == name and run_id in runs]
        rows = select_model_parts(catalog(), name, lake.part_files.base, parts)
        return f"FROM ({rows}) WHERE {quoted(PARTITION_KEY)} = {literal(run_id)}"
    if name not in tables() or _is_copied(con, name):
        return whole
    parts, older = parts_of_run(con, name, run_id)
    return select_parts(tables()[name], lake.part_files.base, parts, older, only={run_id})


def _is_copied(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Return whether the warehouse has the rows of a base table."""
    found = con.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE table_name = $1", [copy_of(name)]
    ).fetchall()
    return bool(found[0][0])
