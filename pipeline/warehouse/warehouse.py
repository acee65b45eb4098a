"""Open a read-only connection that can access only the lake's tables.

A build may replace the warehouse meanwhile, so that its part files disappear: see `ask`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias, TypeVar

import duckdb

from tracelake.base.errors import LakeError, UsageError
from tracelake.lake.run_records import records_file, records_table
from tracelake.lake.store import Lake
from tracelake.models.base import (
    copy_of,
    engine_errors,
    is_corrupt,
    literal,
    nothing,
    point_views,
    quoted,
)
from tracelake.models.catalog import catalog
from tracelake.models.compute import connect
from tracelake.models.describe import relation_columns
from tracelake.models.state import (
    CATALOG,
    attach,
    in_use,
    is_current,
    read_state,
    select_parts_of_runs,
)
from tracelake.models.sums import missing_relations
from tracelake.schema.tables import PARTITION_KEY, tables

# What removes the spill folder of each connection.
_RELEASES: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Callable[[], object]] = (
    weakref.WeakKeyDictionary()
)
# What a query says where a relation, a column or a function is not there.
_NO_NAME = re.compile(r"Catalog Error: .* does not exist|Binder Error: |no column ")
_LOCKED = "Could not set lock on file"


def damaged(lake: Lake, why: str) -> LakeError:
    """Return the error for a warehouse that cannot be read."""
    return LakeError(
        f"the warehouse is damaged: {why}",
        path=lake.warehouse,
        hint="make it anew: tracelake build",
    )


def trouble_behind(lake: Lake, message: str) -> LakeError | None:
    """Return the error for a warehouse that is damaged or of other models.

    None if DuckDB's message cannot come from that. To list tables takes as long as a small query,
    so it is done after an error.
    """
    if is_corrupt(message):
        return damaged(lake, message)
    if not _NO_NAME.search(message):
        return None
    with connect() as con:
        try:
            attach(con, lake.warehouse, read_only=True)
            missing = missing_relations(con)
            state = None if missing else read_state(con)
        except duckdb.Error as error:
            return damaged(lake, str(error))
    if missing:
        return damaged(lake, f"it lacks {', '.join(missing)}")
    if state and state.models != catalog().hash:
        return LakeError(
            f"the warehouse was built with other models than this tracelake has: {message}",
            path=lake.warehouse,
            hint="bring it up to date: tracelake build",
        )
    return None


def open_warehouse(lake: Lake, *, memory: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to the lake's warehouse, read-only, without network or other files.

    If the lake was moved after the build, its files are read in their new place.

    Args:
        memory: Bytes that DuckDB may use before it spills to disk; by default DuckDB's own limit.

    Raises:
        LakeError: There is no warehouse, or this tracelake cannot read it.
        UsageError: The memory is too small to open it.
    """
    if not os.path.lexists(lake.warehouse):
        raise LakeError(
            "the lake has no warehouse", path=lake.name, hint="make it with: tracelake build"
        )
    if not lake.warehouse.is_file():
        raise damaged(lake, "it is not a file")
    held = contextlib.ExitStack()
    limit = {} if memory is None else {"memory_limit": f"{memory}B"}
    try:
        con = connect(temp_directory=str(spill_folder(lake, held)), **limit)
        _RELEASES[con] = weakref.finalize(con, held.close)
    except BaseException:  # also after a signal: nothing else removes the folder
        held.close()
        raise
    lake.part_files.mount(con)
    try:
        attach(con, lake.warehouse, read_only=True)
        if not is_current(con):
            raise LakeError(
                "the warehouse was built by another version",
                path=lake.warehouse,
                hint="build it again: tracelake build",
            )
        _begin(con, lake)
        names = [*tables(), *sorted(catalog().in_parts)]
        folders = ", ".join(literal(f"{lake.part_files.base}/{name}") for name in names)
        con.execute(f"SET allowed_directories = [{folders}]")
        con.execute(f"SET allowed_paths = [{literal(str(records_file(lake.root)))}]")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
    except duckdb.OutOfMemoryException:
        con.close()
        raise UsageError(
            "--memory is too small to open the warehouse", hint="give --memory 60MB or more"
        ) from None
    except duckdb.Error as error:
        con.close()
        if _LOCKED in str(error):
            raise in_use(lake.warehouse) from error
        raise damaged(lake, str(error)) from error
    except LakeError:
        con.close()
        raise
    return con


def open_beside(lake: Lake, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return another connection to the warehouse that one of `open_warehouse` reads."""
    beside = con.cursor()
    _begin(beside, lake)
    return beside


def _begin(con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Prepare a connection to the database of a warehouse."""
    con.execute(f"USE {CATALOG}")
    con.execute(point_views(lake.part_files.base))
    con.execute(_records_view(lake.root))


def _records_view(root: Path) -> str:
    """Return SQL of a temporary view of a lake's record; empty if there is none yet.

    Each connection to the warehouse creates it again: entries appear without a build, and a lake
    that was moved has them in its new place.
    """
    table, path = records_table(), records_file(root)
    if path.is_file():
        types = ", ".join(f"{literal(c.name)}: {literal(c.type)}" for c in table.columns)
        select = (
            f"FROM read_json({literal(str(path))}, format = 'newline_delimited',"
            f" columns = {{{types}}})"
        )
    else:
        select = nothing({c.name: c.type for c in table.columns})
    return f"CREATE TEMP VIEW {quoted(table.name)} AS {select}"


def release(con: duckdb.DuckDBPyConnection) -> None:
    """Remove the spill folder of a connection that cannot be closed."""
    _RELEASES[con]()


def spill_folder(lake: Lake, held: contextlib.ExitStack) -> Path:
    """Return the private folder for spilled queries, on the lake's file system.

    Args:
        held: The stack that removes the folder when it is closed.
    """
    try:
        return held.enter_context(lake.staging("query"))
    except OSError:  # a lake that this user can only read
        return Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tracelake-query-")))


# A build takes longer than opening its result, so more than one in a row is unusual.
ATTEMPTS = 4

# Inode and mtime of the warehouse's file. It is replaced, never written in place.
Edition: TypeAlias = tuple[int, int] | None
_T = TypeVar("_T")


def ask(
    lake: Lake,
    subject: str,
    work: Callable[[duckdb.DuckDBPyConnection], _T],
    *,
    memory: int | None = None,
    attempts: int = ATTEMPTS,
) -> _T:
    """Return the result of `work` on the lake's warehouse, in a connection of `open_warehouse`.

    If a build has replaced the warehouse meanwhile, the work is done again on the new one.

    Args:
        subject: What is being read, for errors.
        work: A function that can be called again.
        memory: See `open_warehouse`.
        attempts: Maximum number of attempts; 1 if the work cannot be repeated.

    Raises:
        LakeError: See `open_warehouse` and `engine_errors`; or a build replaced the warehouse each
            time.
    """
    while True:
        opened = edition(lake)
        try:
            with engine_errors(subject), open_warehouse(lake, memory=memory) as con:
                try:
                    return work(con)
                except (duckdb.Error, KeyError) as error:
                    lacks = f"no column {error}" if isinstance(error, KeyError) else str(error)
                    if trouble := trouble_behind(lake, lacks):
                        raise trouble from error
                    raise
        except LakeError as error:
            attempts -= 1
            if not replaced(lake, opened):
                raise
            if not attempts:
                raise built_anew(lake) from error


def edition(lake: Lake) -> Edition:
    """Return which warehouse is in place now; None if there is none."""
    try:
        found = lake.warehouse.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def replaced(lake: Lake, opened: Edition) -> bool:
    """Return whether another warehouse is in place than the one that was opened."""
    lake.small.refresh(lake.warehouse.name)
    return edition(lake) != opened


def built_anew(lake: Lake) -> LakeError:
    """Return the error for a reader that cannot start again."""
    return LakeError(
        "the lake was built again while it was read", path=lake.name, hint="open it again"
    )


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
