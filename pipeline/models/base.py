"""Base tables as views over explicit lists of part files, read with declared types."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

from pipeline.errors import REFUSED, ContractError, LakeError, RefusedError, StoreError
from pipeline.lake import is_pack
from pipeline.schema import PARTITION_KEY, Column, Table, tables
from pipeline.waiting import raise_if_ending

_QUOTE = "$tracelake$"
# DuckDB has the system's own words only.
_OF_STORE = re.compile(r"^(StoreError|FileNotFoundError|PermissionError): (.+)$", re.MULTILINE)
_REFUSALS = [os.strerror(code) for code in REFUSED]
_NO_FILE = ("No files found", os.strerror(errno.ENOENT))
_DAMAGED = "verify with: tracelake check"
_GONE = f"was the lake built anew? open it again, else {_DAMAGED}"


@contextlib.contextmanager
def engine_errors(subject: str, path: Path | None = None) -> Iterator[None]:
    """DuckDB's errors as those of tracelake.

    Args:
        subject: What is being computed or written.
        path: The SQL's file.

    Raises:
        LakeError: A file cannot be read or written, or memory does not suffice.
        RefusedError: The system has no room for a file, or a broken disk.
        StoreError: A store does not give a file.
        ContractError: The SQL is wrong.
    """
    try:
        yield
    except RuntimeError as error:  # what DuckDB makes of an exception that a signal has raised
        raise_if_ending(error)
        raise
    except duckdb.OutOfMemoryException as error:
        raise LakeError(
            f"memory does not suffice for {subject}: {error}", hint="raise the memory limit"
        ) from error
    except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException) as error:
        if refusal := next((told for told in _REFUSALS if told in str(error)), None):
            raise RefusedError(
                f"{subject}: {refusal}",
                hint="make room or raise the limit, then give the command again",
            ) from error
        if not isinstance(error, duckdb.IOException):
            raise
        gone = ".parquet" in str(error) and any(told in str(error) for told in _NO_FILE)
        raise LakeError(f"{subject}: {error}", hint=_GONE if gone else _DAMAGED) from error
    except duckdb.InvalidInputException as error:
        # The same exception says that a Parquet file is damaged and that a function was misused.
        if ".parquet'" in str(error):
            raise LakeError(f"{subject}: {error}", hint=_DAMAGED) from error
        raise ContractError(f"{subject}: {error}", path=path) from error
    except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
        raise ContractError(f"{subject}: {error}", path=path) from error
    except duckdb.Error as error:  # of the Python file system that a store is read by
        if trouble := store_trouble(str(error)):
            raise trouble from None  # DuckDB's own words are a trace of Python's stack
        raise


def store_trouble(message: str) -> LakeError | StoreError | None:
    """What DuckDB passes on of the Python file system that a store is read by, if it is that."""
    found = _OF_STORE.search(message)
    if found is None:
        return None
    if found[1] == "FileNotFoundError":
        return LakeError(f"a part is gone: {found[2]}", hint="verify with: tracelake check")
    return StoreError(found[2], hint="see whether the store can be reached, then run again")


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def ddl(shown: Iterable[Column]) -> str:
    """Column definitions of a CREATE TABLE."""
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in shown)


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def create_empty_tables(con: duckdb.DuckDBPyConnection) -> None:
    """Typed empty base tables, as temporary tables."""
    for table in tables().values():
        con.execute(f"CREATE TEMP TABLE {quoted(table.name)} ({ddl(table.columns)})")


def copy_of(table: str) -> str:
    """Name of the warehouse's copy of a base table; see `Catalog.copied`."""
    return f"_base_{table}"


def select_parts(
    table: Table,
    base: str,
    parts: Sequence[str],
    older: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    dead: Collection[str] = (),
) -> str:
    """SELECT of a base table's rows from part files, every column cast to its declared type.

    Args:
        base: Directory or URI of the lake, which the SELECT names.
        parts: Relative to it; without any, the SELECT gives no rows.
        older: Those that may lack columns, for they were written by an earlier version; a column
            that is not there is NULL.
        only: Runs whose rows are meant; of a part that holds one run all rows are.
        dead: Runs whose rows in packs are not meant.
    """
    nulls = ", ".join(f"NULL::{c.type} AS {quoted(c.name)}" for c in table.columns)
    nothing = f"SELECT {nulls} WHERE false"
    shown = ", ".join(f"{quoted(c.name)}::{c.type} AS {quoted(c.name)}" for c in table.columns)
    selects = []
    for packed in (False, True):
        meant = _meant(only, dead) if packed else ""
        found = [part for part in parts if is_pack(part) == packed]
        if current := [part for part in found if part not in older]:
            selects.append(f"SELECT {shown} FROM {_read(base, current, packed=packed)}{meant}")
        if lacking := [part for part in found if part in older]:
            rows = _read(base, lacking, "union_by_name = true, ", packed=packed)
            selects.append(f"SELECT {shown} FROM ({nothing} UNION ALL BY NAME FROM {rows}{meant})")
    return " UNION ALL ".join(selects) or nothing


def _meant(only: Collection[str] | None, dead: Collection[str]) -> str:
    """A condition on the run, which DuckDB holds against the least and greatest of row groups."""
    if only is None and not dead:
        return ""
    verb, run_ids = ("NOT IN", dead) if only is None else ("IN", only)
    return f" WHERE {quoted(PARTITION_KEY)} {verb} ({', '.join(map(literal, sorted(run_ids)))})"


def _read(base: str, parts: Iterable[str], option: str = "", *, packed: bool) -> str:
    files = ", ".join(literal(f"{base}/{part}") for part in parts)
    key = f"hive_types = {{{literal(PARTITION_KEY)}: VARCHAR}}"
    hive = "hive_partitioning = false" if packed else f"hive_partitioning = true, {key}"
    return f"read_parquet([{files}], {option}{hive})"


def comment(con: duckdb.DuckDBPyConnection, kind: str, target: str, text: str) -> None:
    """COMMENT ON, which takes no parameters.

    Args:
        kind: TABLE, VIEW or COLUMN.
        target: Quoted name of the object.
    """
    con.execute(f"COMMENT ON {kind} {target} IS {literal(text)}")
