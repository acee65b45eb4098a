"""Read relations of a lake in streams, and write each to the target."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

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


class DuckFile:
    """A DuckDB file with the declared types, and with the meaning of every column."""

    def __init__(self, path: Path) -> None:
        self._con = connect()
        # DuckDB 1.3 and later read this layout.
        self._con.execute(f"ATTACH {literal(str(path))} AS target (STORAGE_VERSION 'v1.3.0')")

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation as a table."""
        target = f"target.main.{quoted(name)}"
        self._con.execute(f"CREATE TABLE {target} ({ddl(columns)})")
        self._con.register("_rows", rows)
        self._con.execute(f"INSERT INTO {target} BY NAME FROM _rows")
        self._con.unregister("_rows")
        self._con.execute(";".join(described("TABLE", target, doc, columns)))

    def close(self) -> None:
        """Write all of it to the file."""
        self._con.execute("DETACH target")
        self._con.close()


class SqliteFile:
    """An SQLite file; `_columns` has the meaning of every table and column."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None)
        self._con.execute("PRAGMA journal_mode = OFF")
        self._con.execute("BEGIN")
        self._con.execute(f"CREATE TABLE {_DOCS} (name, column, type, unit, doc)")

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation as a table."""
        typed = ", ".join(f"{quoted(c.name)} {_SQLITE.get(c.type, 'TEXT')}" for c in columns)
        self._con.execute(f"CREATE TABLE {quoted(name)} ({typed})")
        docs = [(name, None, None, None, doc)]
        docs += [(name, c.name, c.type, c.unit, c.doc) for c in columns]  # type: ignore[misc]
        self._con.executemany(f"INSERT INTO {_DOCS} VALUES (?, ?, ?, ?, ?)", docs)
        places = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {quoted(name)} VALUES ({places})"
        for batch in rows:
            self._con.executemany(insert, (tuple(map(_value, row)) for row in rows_of(batch)))

    def close(self) -> None:
        """Write all of it to the file."""
        self._con.execute("COMMIT")
        self._con.close()


def _value(value: object) -> object:
    """Return a value that SQLite can hold."""
    plain = jsonable(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict) else plain


_DATABASES: dict[str, type[DuckFile] | type[SqliteFile]] = {
    "duckdb": DuckFile,
    "sqlite": SqliteFile,
}


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

        made = _database(path, fmt) if fmt in _DATABASES else nullcontext(_Files(path, fmt))
        with made as target:
            for name, columns in chosen.items():
                per_run = PARTITION_KEY in {column.name for column in columns}
                only = runs if runs and per_run else None
                relation = con.sql(f"FROM {quoted(name)}{of_runs(only)}")
                reader = relation.to_arrow_reader(_BATCH_ROWS)
                rows = counted_rows(name, reader)
                reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
                target.add(name, docs[name], columns, reader)
        return Exported(path, counts)

    return ask(lake, "the export", copy)


@contextmanager
def _database(path: Path, fmt: str) -> Iterator[DuckFile | SqliteFile]:
    """Yield a new database file; it takes the place of `path` when it is complete."""
    with (
        output(path) as stream,
        tempfile.TemporaryDirectory(prefix=".tracelake-export-", dir=path.parent) as folder,
    ):
        made = Path(folder) / "database"
        with closing(_DATABASES[fmt](made)) as database:
            yield database
        with made.open("rb") as written:
            shutil.copyfileobj(written, stream, 1 << 20)


class _Files:
    """A folder with a file per relation; it is made if it does not exist."""

    def __init__(self, path: Path, fmt: str) -> None:
        try:
            files.make_folder(path)
        except OSError as error:
            raise UsageError(
                f"cannot make the folder: {error.strerror}", path=path, hint="name another folder"
            ) from error
        self._path = path
        self._format = fmt

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation into a file of its name."""
        del doc, columns  # these files have no place for them
        write_result(rows, self._format, self._path / f"{name}.{self._format}")
