"""Define base tables as views over explicit lists of part files, with declared types."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import duckdb

from tracelake.base.errors import (
    REFUSED,
    ContractError,
    LakeError,
    RefusedError,
    RowsError,
    ShortMemoryError,
    StoreError,
    advice_on,
)
from tracelake.base.signals import raise_if_ending
from tracelake.lake.layout import names_runs
from tracelake.lake.losses import lost_table
from tracelake.schema.tables import PARTITION_KEY, Column, Table, tables

# DuckDB variable with the place of the lake: a directory or URI.
_PLACE = "lake"
# DuckDB only passes on the system's message.
# With newer versions of Python it passes on the traceback, which has the module of the class.
_OF_STORE = re.compile(
    r"^(?:[\w.]+\.)?(StoreError|FileNotFoundError|PermissionError): (.+)$", re.MULTILINE
)
_REFUSALS = {os.strerror(code): code for code in REFUSED}
_NO_FILE = ("No files found", os.strerror(errno.ENOENT))
_DAMAGED = "verify with: tracelake check"
REBUILD = "make the warehouse anew: tracelake build"
_GONE = f"was the lake built again? open it again, else {_DAMAGED}"


@contextlib.contextmanager
def engine_errors(subject: str, path: Path | None = None) -> Iterator[None]:
    """Raise DuckDB's errors as those of tracelake.

    Args:
        subject: What is being computed or written.
        path: The SQL's file.

    Raises:
        LakeError: A file cannot be read or written.
        ShortMemoryError: Memory is too small.
        RefusedError: The disk is full or broken.
        StoreError: A store does not give a file.
        RowsError: The SQL fails on the rows that it reads.
        ContractError: The SQL is wrong.
    """
    try:
        yield
    except RuntimeError as error:  # DuckDB replaces the exception that a signal has raised
        raise_if_ending(error)
        raise
    except duckdb.OutOfMemoryException as error:
        raise ShortMemoryError(
            f"--memory is too small for {subject}: {str(error).splitlines()[0]}",
            hint="raise the memory limit",
        ) from None
    except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException) as error:
        if refusal := next((sign for sign in _REFUSALS if sign in str(error)), None):
            advice = advice_on(OSError(_REFUSALS[refusal], refusal))
            raise RefusedError(f"{subject}: {refusal}", hint=advice) from error
        if not isinstance(error, duckdb.IOException):
            raise
        gone = ".parquet" in str(error) and any(sign in str(error) for sign in _NO_FILE)
        message, _, _ = str(error).partition("\n\nLINE ")  # and SQL, which the reader did not write
        raise LakeError(f"{subject}: {message}", hint=_GONE if gone else _DAMAGED) from error
    except duckdb.InvalidInputException as error:
        # The same exception means a damaged Parquet file or a misused function.
        if ".parquet'" in str(error):
            raise LakeError(f"{subject}: {error}", hint=_DAMAGED) from error
        raise RowsError(f"{subject}: {error}", subject=subject, path=path) from error
    except duckdb.DataError as error:
        raise RowsError(f"{subject}: {error}", subject=subject, path=path) from error
    except (duckdb.ProgrammingError, duckdb.NotSupportedError) as error:
        raise ContractError(f"{subject}: {error}", path=path) from error
    except duckdb.Error as error:
        if is_corrupt(str(error)):
            raise LakeError(f"{subject}: {error}", hint=REBUILD) from error
        # from the Python file system that reads a store
        if trouble := store_trouble(str(error)):
            raise trouble from None  # DuckDB's own message is a Python stack trace
        raise


def is_corrupt(message: str) -> bool:
    """Return whether an error of DuckDB is about a damaged block of the warehouse."""
    return "Corrupt database file" in message


def store_trouble(message: str) -> LakeError | StoreError | None:
    """Return the error of the Python file system that DuckDB passes on, if it is one."""
    found = _OF_STORE.search(message)
    if found is None:
        return None
    if found[1] == "FileNotFoundError":
        return LakeError(f"a part is missing: {found[2]}", hint=_DAMAGED)
    return StoreError(found[2], hint="check that the store can be reached, then run again")


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def ddl(shown: Iterable[Column], types: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return column definitions of a CREATE TABLE.

    Args:
        types: Column -> type that it gets instead of its declared one.
    """
    return ", ".join(f"{quoted(c.name)} {types.get(c.name, c.type)}" for c in shown)


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def own(name: str) -> str:
    """Return a relation of a connection's own database, not of one that is attached to it."""
    return f"memory.main.{quoted(name)}"


def create_empty_tables(con: duckdb.DuckDBPyConnection) -> None:
    """Create typed empty tables that models read."""
    for table in (*tables().values(), lost_table()):
        create_empty(con, table.name, table.columns)


def create_empty(con: duckdb.DuckDBPyConnection, name: str, shown: Iterable[Column]) -> None:
    """Create a table without rows."""
    con.execute(f"CREATE TABLE {own(name)} ({ddl(shown)})")


def copy_of(table: str) -> str:
    """Return the name of the warehouse's copy of a base table; see `Catalog.copied`."""
    return f"_base_{table}"


def select_parts(
    table: Table,
    base: str,
    parts: Sequence[str],
    older: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    dead: Mapping[str, Collection[str]] = MappingProxyType({}),
    enums: Mapping[str, str] = MappingProxyType({}),
    movable: bool = False,
) -> str:
    """Return SELECT of a base table's rows from part files, every column cast to its declared type.

    Args:
        base: Directory or URI of the lake, which the SELECT names.
        parts: Relative to it; without any, the SELECT gives no rows.
        older: Parts of an earlier version, which may lack columns; a missing column is NULL.
        only: Runs to select from parts whose rows name their run; others are selected in full.
        dead: Parts with outdated rows, each with their runs, which are left out.
        enums: Column -> ENUM type of its texts, instead of its declared type.
        movable: Read below the DuckDB variable `lake` where it is set: see `point_views`.
    """
    types = {c.name: enums.get(c.name, c.type) for c in table.columns}
    # What cannot fail is cast once per text of a Parquet dictionary, what can fail once per row.
    shown = ", ".join(
        f"{'try_cast' if name in enums else 'cast'}({quoted(name)} AS {kind}) AS {quoted(name)}"
        for name, kind in types.items()
    )
    selects = []
    alike: dict[tuple[bool, bool, frozenset[str]], list[str]] = {}
    for part in parts:
        kind = names_runs(part), part in older, frozenset(dead.get(part, ()))
        alike.setdefault(kind, []).append(part)
    for (named, lacking, outdated), found in sorted(alike.items(), key=str):
        meant = of_runs(only, outdated) if named else ""
        rows = f"{_read(base, found, named=named, movable=movable, union=lacking)}{meant}"
        if lacking:
            declared = nothing({c.name: c.type for c in table.columns})
            known = f"{declared} UNION ALL BY NAME FROM {rows}"
            rows = f"({_filled(table, known)})"
        selects.append(f"SELECT {shown} FROM {rows}")
    return " UNION ALL ".join(selects) or nothing(types)


def nothing(types: Mapping[str, str]) -> str:
    """Return SELECT of no rows with columns of these types."""
    nulls = ", ".join(f"NULL::{kind} AS {quoted(name)}" for name, kind in types.items())
    return f"SELECT {nulls} WHERE false"


def _filled(table: Table, known: str) -> str:
    """Return SELECT with columns that parts of an earlier version lack, as other columns tell."""
    from tracelake.formats import formats  # noqa: PLC0415 - slow, and rarely needed

    filled = ", ".join(
        f"coalesce({quoted(name)}, {sql}) AS {quoted(name)}"
        for kind in formats().values()
        for name, sql in kind.earlier.get(table.name, {}).items()
    )
    return f"SELECT * REPLACE ({filled}) FROM ({known})" if filled else known


def of_runs(only: Collection[str] | None, without: Collection[str] = ()) -> str:
    """Return a condition on the run; DuckDB uses it to skip row groups by their statistics.

    Args:
        only: Rows of these runs; None for all.
        without: Of these none.
    """
    if only is None and not without:
        return ""
    verb, run_ids = ("NOT IN", without) if only is None else ("IN", set(only).difference(without))
    if not run_ids:
        return " WHERE false"
    return f" WHERE {quoted(PARTITION_KEY)} {verb} ({', '.join(map(literal, sorted(run_ids)))})"


def _read(
    base: str, parts: Iterable[str], *, named: bool, movable: bool, union: bool = False
) -> str:
    if movable:
        listed = ", ".join(map(literal, parts))
        root = f"coalesce(getvariable({literal(_PLACE)}), {literal(base)})"
        files = f"list_transform([{listed}], lambda part: {root} || '/' || part)"
    else:
        files = f"[{', '.join(literal(f'{base}/{part}') for part in parts)}]"
    key = f"hive_types = {{{literal(PARTITION_KEY)}: VARCHAR}}"
    hive = "hive_partitioning = false" if named else f"hive_partitioning = true, {key}"
    return f"read_parquet({files}, {'union_by_name = true, ' if union else ''}{hive})"


def point_views(base: str) -> str:
    """Return the statement that makes the views of a warehouse read the lake at this place.

    Without it they read the place where the lake was when the warehouse was built.
    """
    return f"SET VARIABLE {_PLACE} = {literal(base)}"


def described(kind: str, target: str, doc: str, shown: Iterable[Column]) -> Iterator[str]:
    """Yield the statements that describe a relation and its columns: COMMENT takes no parameters.

    Args:
        kind: TABLE or VIEW.
        target: Quoted name of the relation.
    """
    yield f"COMMENT ON {kind} {target} IS {literal(doc)}"
    for column in shown:
        yield f"COMMENT ON COLUMN {target}.{quoted(column.name)} IS {literal(column.comment)}"
