"""Select the rows of runs from the part files that hold them: a view of all files opens each."""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from tracelake.base.errors import UsageError
from tracelake.lake.store import Lake
from tracelake.models.base import copy_of, literal, quoted
from tracelake.models.catalog import catalog
from tracelake.models.describe import relation_columns
from tracelake.models.state import select_parts_of_runs
from tracelake.schema.tables import PARTITION_KEY, tables


def run_rows(con: duckdb.DuckDBPyConnection, lake: Lake, name: str, run_id: str | None) -> str:
    """Return SELECT of a table or model, whole or of one run, for a connection of `open_warehouse`.

    Raises:
        UsageError: There is no such relation, or it has no rows per run.
    """
    columns = relation_columns(name)
    if run_id is None:
        return f"FROM {quoted(name)}"
    if PARTITION_KEY not in {column.name for column in columns}:
        raise UsageError(f"{name} has no rows per run", hint="leave out run")
    rows = quoted(name)
    if name in catalog().in_parts or (name in tables() and not _is_copied(con, name)):
        rows = f"({_selects(con, lake, {name}, {run_id})[name]})"
    return f"FROM {rows} WHERE {quoted(PARTITION_KEY)} = {literal(run_id)}"


def views_of_runs(con: duckdb.DuckDBPyConnection, lake: Lake, run_ids: Collection[str]) -> str:
    """Return statements that hide the views of all part files behind views of those of some runs.

    On a connection that has executed them, tables and models with a row per operation, call or
    step lack the rows of other runs.
    """
    names = {*tables(), *catalog().in_parts} - {*catalog().copied, "skipped"}
    selects = _selects(con, lake, names, run_ids)
    return ";".join(
        f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {select}"
        for name, select in selects.items()
    )


def _selects(
    con: duckdb.DuckDBPyConnection, lake: Lake, names: Collection[str], run_ids: Collection[str]
) -> dict[str, str]:
    """Return SELECTs of relations whose rows are in part files, from those that hold the runs."""
    relations = [tables().get(name) or catalog().table(name) for name in names]
    return select_parts_of_runs(con, relations, list(run_ids), lake.part_files.base)


def _is_copied(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Return whether the warehouse has the rows of a base table."""
    found = con.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE table_name = $1", [copy_of(name)]
    ).fetchall()
    return bool(found[0][0])
