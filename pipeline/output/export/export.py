"""Read relations of a lake in streams, and write each to the target."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from tracelake.base import files
from tracelake.base.errors import UsageError
from tracelake.base.files import output
from tracelake.base.text import counted
from tracelake.lake.store import Lake
from tracelake.models.base import literal, quoted
from tracelake.models.describe import describe, relation_columns
from tracelake.output.export.databases import DuckFile, SqliteFile
from tracelake.schema.tables import PARTITION_KEY, Column
from tracelake.warehouse.reopening import ask
from tracelake.warehouse.results import write_result

_SUFFIXES = {".duckdb": "duckdb", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite"}
_DATABASES: dict[str, type[DuckFile] | type[SqliteFile]] = {
    "duckdb": DuckFile,
    "sqlite": SqliteFile,
}
_BATCH_ROWS = 64 * 1024


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
    if path.suffix in _SUFFIXES and given not in (None, *_DATABASES):
        raise UsageError(
            f"{given} files go into a folder, and the target is named as a database",
            path=path,
            hint=f"name a folder that does not end in {path.suffix}, or leave out --format",
        )
    found = given or _SUFFIXES.get(path.suffix)
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

        with (_database if fmt in _DATABASES else _folder)(path, fmt) as target:
            for name, columns in chosen.items():
                relation = con.sql(f"FROM {quoted(name)}{_of_runs(columns, runs)}")
                reader = relation.to_arrow_reader(_BATCH_ROWS)
                rows = counted_rows(name, reader)
                reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
                target.add(name, docs[name], columns, reader)
        return Exported(path, counts)

    return ask(lake, "the export", copy)


def _of_runs(columns: Sequence[Column], runs: Sequence[str]) -> str:
    if not runs or PARTITION_KEY not in {column.name for column in columns}:
        return ""
    return f" WHERE {quoted(PARTITION_KEY)} IN ({', '.join(map(literal, runs))})"


@contextlib.contextmanager
def _database(path: Path, fmt: str) -> Iterator[DuckFile | SqliteFile]:
    """Yield a new database file; it takes the place of `path` when it is complete."""
    with (
        output(path) as stream,
        tempfile.TemporaryDirectory(prefix=".tracelake-export-", dir=path.parent) as folder,
    ):
        made = Path(folder) / "database"
        with contextlib.closing(_DATABASES[fmt](made)) as database:
            yield database
        with made.open("rb") as written:
            shutil.copyfileobj(written, stream, 1 << 20)


@contextlib.contextmanager
def _folder(path: Path, fmt: str) -> Iterator[_Files]:
    """Yield a folder with a file per relation."""
    try:
        files.make_folder(path)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder: {error.strerror}", path=path, hint="name another folder"
        ) from error
    yield _Files(path, fmt)


class _Files:
    """A folder with a file per relation."""

    def __init__(self, path: Path, fmt: str) -> None:
        self._path = path
        self._format = fmt

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation into a file of its name."""
        del doc, columns  # these files have no place for them
        with (
            output(self._path / f"{name}.{self._format}") as stream,
            io.TextIOWrapper(stream, encoding="utf-8") as text,
        ):
            write_result(rows, self._format, text)
