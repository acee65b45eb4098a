"""Read relations of a lake in streams, and write each to the target."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa

from tracelake.base import files
from tracelake.base.errors import UsageError
from tracelake.base.files import output
from tracelake.base.text import counted
from tracelake.lake.store import Lake
from tracelake.models.base import ddl, described, literal, of_runs, quoted
from tracelake.models.compute import connect
from tracelake.models.describe import describe, relation_columns
from tracelake.schema.tables import PARTITION_KEY, Column
from tracelake.warehouse.results import write_result
from tracelake.warehouse.values import jsonable, rows_of
from tracelake.warehouse.warehouse import ask

_SUFFIXES = {".duckdb": "duckdb", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite"}
_BATCH_ROWS = 64 * 1024
# DuckDB type -> SQLite type; lists and maps become JSON text, times text.
_SQLITE = {"BOOLEAN": "INTEGER", "INTEGER": "INTEGER", "BIGINT": "INTEGER", "DOUBLE": "REAL"}
# Tables and columns with their meaning, because SQLite has no comments.
_DOCS = "_columns"


# Writes a relation with this name, meaning and columns.
_Add: TypeAlias = Callable[[str, str, Sequence[Column], pa.RecordBatchReader], None]


@contextmanager
def _duckdb(path: Path) -> Iterator[_Add]:
    """Yield what adds tables with the declared types, and with the meaning of every column."""

    def add(name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader) -> None:
        target = f"target.main.{quoted(name)}"
        con.execute(f"CREATE TABLE {target} ({ddl(columns)})")
        con.register("_rows", rows)
        con.execute(f"INSERT INTO {target} BY NAME FROM _rows")
        con.unregister("_rows")
        con.execute(";".join(described("TABLE", target, doc, columns)))

    with connect() as con:
        # DuckDB 1.3 and later read this layout.
        con.execute(f"ATTACH {literal(str(path))} AS target (STORAGE_VERSION 'v1.3.0')")
        yield add
        con.execute("DETACH target")


@contextmanager
def _sqlite(path: Path) -> Iterator[_Add]:
    """Yield what adds tables; `_columns` has the meaning of every table and column."""

    def add(name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader) -> None:
        typed = ", ".join(f"{quoted(c.name)} {_SQLITE.get(c.type, 'TEXT')}" for c in columns)
        con.execute(f"CREATE TABLE {quoted(name)} ({typed})")
        docs = [(name, None, None, None, doc)]
        docs += [(name, c.name, c.type, c.unit, c.doc) for c in columns]  # type: ignore[misc]
        con.executemany(f"INSERT INTO {_DOCS} VALUES (?, ?, ?, ?, ?)", docs)
        places = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {quoted(name)} VALUES ({places})"
        for batch in rows:
            con.executemany(insert, (tuple(map(_value, row)) for row in rows_of(batch)))

    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute("PRAGMA journal_mode = OFF")
        con.execute("BEGIN")
        con.execute(f"CREATE TABLE {_DOCS} (name, column, type, unit, doc)")
        yield add
        con.execute("COMMIT")


def _value(value: object) -> object:
    """Return a value that SQLite can hold."""
    plain = jsonable(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else plain


_DATABASES = {"duckdb": _duckdb, "sqlite": _sqlite}


@dataclass(frozen=True, slots=True)
class Exported:
    """Describe what was written.

    Attributes:
        rows: By relation.
    """

    path: Path
    rows: dict[str, int]

    def summary(self) -> str:
        """Return one line for people."""
        total = sum(self.rows.values())
        return (
            f"export: {counted(len(self.rows), 'relation')}, {counted(total, 'row')}, {self.path}"
        )


def format_of(path: Path, given: str | None) -> str:
    """Return the format of an export: as given, else by the suffix of the target.

    Raises:
        UsageError: Neither says it, or they contradict each other.
    """
    suffix = path.suffix.lower()
    named = _SUFFIXES.get(suffix)
    found = given or named
    if named not in (None, found) and (suffix, found) != (".db", "duckdb"):
        what = "a database" if given in _DATABASES else "a folder"
        raise UsageError(
            f"{given} is {what}, and the target is named as a database of {named}",
            path=path,
            hint=f"name {what} that does not end in {path.suffix}, or leave out --format",
        )
    if found is None:
        raise UsageError(
            "the target's name does not say its format",
            path=path,
            hint="end it in .duckdb or .sqlite, or name a folder with --format csv or parquet",
        )
    return found


def export(
    lake: Lake, path: Path, fmt: str, names: Sequence[str] = (), runs: Sequence[str] = ()
) -> Exported:
    """Copy relations out of a lake. A file appears when it is complete and replaces an older one.

    Args:
        path: The database file, or for csv and parquet the folder of a file per relation.
        fmt: duckdb, sqlite, csv or parquet.
        names: Tables and models; all by default.
        runs: Ids of the only runs whose rows are copied; relations without runs are copied whole.

    Raises:
        UsageError: There is no such relation, or the target cannot be written.
        LakeError: The lake cannot be read.
    """
    docs = {row["name"]: row["doc"] for row in describe().to_pylist()}
    chosen = {name: relation_columns(name) for name in names or docs}

    def copy(con: duckdb.DuckDBPyConnection) -> Exported:
        counts = dict.fromkeys(chosen, 0)

        def counted_rows(name: str, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
            for batch in reader:
                counts[name] += batch.num_rows
                yield batch

        with _database(path, fmt) if fmt in _DATABASES else nullcontext(_files(path, fmt)) as add:
            for name, columns in chosen.items():
                per_run = PARTITION_KEY in {column.name for column in columns}
                only = runs if runs and per_run else None
                relation = con.sql(f"FROM {quoted(name)}{of_runs(only)}")
                reader = relation.to_arrow_reader(_BATCH_ROWS)
                rows = counted_rows(name, reader)
                reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
                add(name, docs[name], columns, reader)
        return Exported(path, counts)

    return ask(lake, "the export", copy)


@contextmanager
def _database(path: Path, fmt: str) -> Iterator[_Add]:
    """Yield a new database file; it takes the place of `path` when it is complete."""
    with (
        output(path) as stream,
        tempfile.TemporaryDirectory(prefix=".tracelake-export-", dir=path.parent) as folder,
    ):
        made = Path(folder) / "database"
        with _DATABASES[fmt](made) as add:
            yield add
        with made.open("rb") as written:
            shutil.copyfileobj(written, stream, 1 << 20)


def _files(path: Path, fmt: str) -> _Add:
    """Make the folder, and return what writes each relation into a file of its name there."""
    try:
        files.make_folder(path)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder: {error.strerror}", path=path, hint="name another folder"
        ) from error
    # These files have no place for meanings.
    return lambda name, _, __, rows: write_result(rows, fmt, path / f"{name}.{fmt}")
