"""Writes a run's rows as Parquet parts, in bounded memory and independent of timing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.lake import part_folder
from pipeline.schema import Table, tables

ROW_GROUP_ROWS = 1 << 18
ROW_GROUPS_PER_PART = 32


class PartWriter:
    """Collects batches by table and writes a row group whenever one is full.

    Where parts and row groups are cut depends on the rows alone, so that the same input gives the
    same files. Writing happens on the executor, one row group behind the parser.
    """

    def __init__(self, run_id: str | None, staging: Path, executor: Executor) -> None:
        self.rows: dict[str, int] = {}
        self._run_id = run_id
        self._staging = staging
        self._executor = executor
        self._tables: dict[str, _TableWriter] = {}
        self._pending: Future[None] | None = None

    def add(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes rows in order; blocks while more than one row group waits to be written."""
        for batch in batches:
            if not batch.num_rows:
                continue
            writer = self._tables.get(table)
            if writer is None:
                writer = self._tables[table] = _TableWriter(tables()[table], self._staging)
            self.rows[table] = self.rows.get(table, 0) + batch.num_rows
            for group in writer.add(batch):
                self._wait()
                self._pending = self._executor.submit(writer.write, group)

    def close(self) -> dict[str, Path]:
        """Writes what is left; returns final path, relative to the lake -> staged file."""
        self._wait()
        staged = {}
        for table, writer in sorted(self._tables.items()):
            for part in writer.close():
                name = f"part-{_file_hash(part)}.parquet"
                staged[f"{part_folder(table, self._run_id)}/{name}"] = part
        return staged

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None


class _TableWriter:
    def __init__(self, table: Table, staging: Path) -> None:
        self._table = table
        self._staging = staging
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._groups = 0
        self._parts: list[Path] = []

    def add(self, batch: pa.RecordBatch) -> Iterable[pa.Table]:
        """Full row groups, once the batch has filled them."""
        while self._rows + batch.num_rows >= ROW_GROUP_ROWS:
            room = ROW_GROUP_ROWS - self._rows
            self._batches.append(batch.slice(0, room))
            batch = batch.slice(room)
            yield self._take()
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows

    def _take(self) -> pa.Table:
        group = pa.Table.from_batches(self._batches, self._table.storage_schema)
        self._batches, self._rows = [], 0
        return group

    def write(self, group: pa.Table) -> None:
        if self._writer is None:
            self._open()
        assert self._writer is not None
        whole = group.unify_dictionaries().combine_chunks()
        self._writer.write_table(whole, row_group_size=ROW_GROUP_ROWS)
        self._groups += 1
        if self._groups == ROW_GROUPS_PER_PART:
            self._close_part()

    def close(self) -> list[Path]:
        if self._rows:
            self.write(self._take())
        self._close_part()
        return self._parts

    def _open(self) -> None:
        path = self._staging / f"{self._table.name}-{len(self._parts)}.parquet"
        self._writer = pq.ParquetWriter(
            path,
            self._table.storage_schema,
            compression="zstd",
            use_dictionary=[c.name for c in self._table.stored if c.dictionary],
            column_encoding={
                c.name: "DELTA_BINARY_PACKED"
                for c in self._table.stored
                if c.type in ("BIGINT", "INTEGER")
            },
        )
        self._parts.append(path)
        self._groups = 0

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:20]
