"""A read-only connection that reaches nothing but the lake, and the statements it takes."""

from __future__ import annotations

import contextlib
import re
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from pipeline.errors import LakeError, UsageError
from pipeline.lake import Lake
from pipeline.models.base import copy_of, literal, quoted, select_parts
from pipeline.models.compute import connect
from pipeline.models.state import CATALOG, attach, read_root, read_state
from pipeline.schema import tables

_BATCH_ROWS = 64 * 1024
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)
_REBUILD = "build it again: tracelake build --full"


def open_warehouse(lake: Lake) -> duckdb.DuckDBPyConnection:
    """A connection to the lake's warehouse, read-only, without network or other files.

    Where the lake was moved since the build, the base tables are found at their new place.

    Raises:
        LakeError: There is no warehouse, or this tracelake cannot read it.
    """
    if not lake.warehouse.is_file():
        raise LakeError(
            "the lake has no warehouse", path=lake.root, hint="make it with: tracelake build"
        )
    held = contextlib.ExitStack()
    con = connect(temp_directory=str(_spill_folder(lake, held)))
    weakref.finalize(con, held.close)
    try:
        attach(con, lake.warehouse, read_only=True)
        root = read_root(con)
        if root is None:
            raise LakeError(
                "the warehouse was built by another version",
                path=lake.warehouse,
                hint=_REBUILD,
            )
        con.execute(f"USE {CATALOG}")
        if root != str(lake.root):
            _follow_move(con, lake.root)
        con.execute(f"SET allowed_directories = [{literal(str(lake.root))}]")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
    except (duckdb.IOException, duckdb.SerializationException, duckdb.InternalException) as error:
        con.close()
        raise LakeError(
            f"the warehouse cannot be opened: {error}", path=lake.warehouse, hint=_REBUILD
        ) from error
    except LakeError:
        con.close()
        raise
    return con


def _spill_folder(lake: Lake, held: contextlib.ExitStack) -> Path:
    """Where a query puts what memory does not take: beside the lake's data, for this user alone.

    Args:
        held: Removes the folder when it is closed.
    """
    try:
        return held.enter_context(lake.staging("query"))
    except OSError:  # a lake that this user only reads
        return Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tracelake-query-")))


def _follow_move(con: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Hides the views of part files by others that find them where the lake is now."""
    state = read_state(con)
    there = {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    for table in tables().values():
        if state and copy_of(table.name) not in there:
            select = select_parts(table, root, state.parts[table.name], state.older)
            con.execute(f"CREATE TEMP VIEW {quoted(table.name)} AS {select}")


def run_query(lake: Lake, sql: str) -> Iterator[pa.RecordBatchReader]:
    """Answers one or more statements over the lake's warehouse.

    Returns:
        One reader per statement, in order; read each to its end before taking the next.

    Raises:
        LakeError: See `open_warehouse`; or a part file is gone.
        UsageError: Not SQL, or a statement that is not a SELECT, EXPLAIN, DESCRIBE or SHOW; while
            reading, what DuckDB says about it.
    """
    con = open_warehouse(lake)
    try:
        statements = _allowed(con, sql)
    except UsageError:
        con.close()
        raise
    return _answers(con, statements)


def _answers(
    con: duckdb.DuckDBPyConnection, statements: list[str]
) -> Iterator[pa.RecordBatchReader]:
    with con:
        for statement in statements:
            try:
                reader = con.sql(statement).to_arrow_reader(_BATCH_ROWS)
            except duckdb.Error as error:
                raise _told(str(error), io=isinstance(error, duckdb.IOException)) from error
            yield pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Batches of a result; DuckDB's errors come as whatever Arrow makes of them."""
    try:
        yield from reader
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        raise _told(str(error), io=str(error).startswith("IO Error")) from error


def _told(message: str, *, io: bool) -> LakeError | UsageError:
    if io:
        return LakeError(message, hint="bring the warehouse up to date: tracelake build")
    return UsageError(message)


def _allowed(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Statements of a text, each of which only reads."""
    found = _extract(con, sql)
    if not found:
        raise UsageError("the query is empty")
    for statement in found:
        inner = statement
        if statement.type == duckdb.StatementType.EXPLAIN:
            explained = _extract(con, _EXPLAIN.sub("", statement.query, count=1))
            inner = explained[0] if len(explained) == 1 else statement
        if inner.type == duckdb.StatementType.MULTI:
            raise UsageError("PIVOT must name its values", hint="PIVOT ... ON column IN (...)")
        if inner.type != duckdb.StatementType.SELECT:
            raise UsageError(
                f"{inner.type.name.replace('_', ' ')} is not for queries: the lake is read-only",
                hint="SELECT, EXPLAIN, DESCRIBE or SHOW;"
                " for more, ATTACH the warehouse READ_ONLY in a database of your own",
            )
    return [statement.query for statement in found]


def _extract(con: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    try:
        return con.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(str(error)) from error
