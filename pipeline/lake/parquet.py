"""Write rows as Parquet parts, in bounded memory and independent of timing."""

from __future__ import annotations

import functools
import hashlib
import io
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.base.files import NewFile
from tracelake.base.metrics import phase
from tracelake.lake.layout import part_name
from tracelake.lake.record_batches import cut, joined
from tracelake.schema.tables import PARTITION_KEY, tables

ROW_GROUP_ROWS = 1 << 18
ROW_GROUPS_PER_PART = 32
LANES = 2
SMALL_ROWS = 1 << 12
"""Parts of fewer rows are compressed with LZ4: zstd's set-up per page is half the time to write
them, and what it saves is less than a disk block."""

_SINK_BYTES = 1 << 20
_WRITTEN_ROWS = 1 << 10
"""Values of a column that the writer takes at a time, before it checks page and dictionary size."""

_Layout = tuple[pa.Schema, dict[str, Any]]
"""The schema of a part, and how `pq.ParquetWriter` stores its columns."""
_NESTED = {
    "BIGINT[]": (".list.element",),
    "VARCHAR[]": (".list.element",),
    "MAP": (".key_value.key", ".key_value.value"),
}


SchemaName = Literal["part_schema", "rewritten_schema", "storage_schema"]
"""The schema of parts, by its name in `Table`: of parsed rows; of rows that the lake had, which may
lack columns where an earlier version wrote them; of rows of `skipped`, which belong to no run."""


class PartWriter:
    """Collects batches by table and writes each full row group.

    Files depend on the rows and their order alone, not on the batches they come in: part and row
    group are cut by number of rows, and a column's words are numbered in alphabetical order.
    Writing happens on the executor, while rows are added. A table with many rows is written to two
    parts at a time, a row group to each in turn, because writing takes longer than parsing.

    Rows of several runs are in order of their run id.

    Args:
        schema: The schema of the parts.
        whole: Write one part per table, whatever its size.
    """

    def __init__(
        self,
        staging: Path,
        executor: Executor,
        schema: SchemaName = "part_schema",
        *,
        whole: bool = False,
    ) -> None:
        self._schema = schema
        self._whole = whole
        self._staging = staging
        self._executor = executor
        self._tables: dict[str, _TableWriter] = {}
        self._busy: deque[_Lane] = deque()

    def add(self, table: str, batches: Iterable[pa.RecordBatch], run_id: str | None = None) -> None:
        """Add rows in order; block while two row groups are being written.

        Args:
            run_id: Run of the rows; None if they name it, or belong to none.
        """
        for batch in batches:
            self.add_runs(table, batch, None if run_id is None else {run_id: batch.num_rows})

    def add_runs(self, table: str, batch: pa.RecordBatch, runs: Mapping[str, int] | None) -> None:
        """Add rows of several runs, one after the other.

        Args:
            runs: How many rows each run has; None if they name it, or belong to none.
        """
        if not batch.num_rows:
            return
        writer = self._tables.get(table)
        if writer is None:
            writer = self._tables[table] = _TableWriter(
                _layout(table, self._schema), self._staging / table, whole=self._whole
            )
        for lane, group in writer.add(batch, runs):
            while len(self._busy) == LANES or lane in self._busy:
                self._busy.popleft().wait()
            lane.begin(group, self._executor)
            self._busy.append(lane)

    def close(self, partition: str) -> dict[str, Path]:
        """Write the rest; return final path, relative to the lake -> staged file.

        Args:
            partition: Folder of the parts below that of their table.
        """
        while self._busy:
            self._busy.popleft().wait()
        staged = {}
        for table, writer in sorted(self._tables.items()):
            for path, digest in writer.close():
                staged[part_name(f"{table}/{partition}", digest)] = path
        return staged


_Group = Sequence[tuple[Mapping[str, int] | None, pa.RecordBatch]]
"""The rows of a row group, each batch with how many rows of it belong to which run; None if they
name it, or belong to none."""


class _TableWriter:
    def __init__(self, layout: _Layout, path: Path, *, whole: bool) -> None:
        self._batches: list[tuple[Mapping[str, int] | None, pa.RecordBatch]] = []
        self._rows = 0
        self._groups = 0
        lanes = range(1 if whole else LANES)
        self._lanes = [_Lane(layout, Path(f"{path}-{i}"), whole=whole) for i in lanes]

    def add(
        self, batch: pa.RecordBatch, runs: Mapping[str, int] | None
    ) -> Iterator[tuple[_Lane, _Group]]:
        """Yield full row groups and where they go, once the batch has filled them."""
        while self._rows + batch.num_rows >= ROW_GROUP_ROWS:
            head, batch = cut(batch, ROW_GROUP_ROWS - self._rows)
            first, runs = (None, None) if runs is None else _cut_runs(runs, head.num_rows)
            self._batches.append((first, head))
            yield self._lanes[self._groups % len(self._lanes)], self._take()
            self._groups += 1
        if batch.num_rows:
            self._batches.append((runs, batch))
            self._rows += batch.num_rows

    def _take(self) -> _Group:
        batches, self._batches, self._rows = self._batches, [], 0
        return batches

    def close(self) -> list[tuple[Path, str]]:
        """Return parts with the SHA-256 of their content; a small last group joins another part."""
        if self._rows:
            lane = next((lane for lane in self._lanes if lane.part is not None), self._lanes[0])
            lane.write(self._take())
        return [part for lane in self._lanes for part in lane.close()]


class _Lane:
    """Parts that are written one after the other, each with a limited number of row groups."""

    def __init__(self, layout: _Layout, path: Path, *, whole: bool) -> None:
        self._layout = layout
        self._path = path
        self._whole = whole
        self.part: _Part | None = None
        self._parts: list[tuple[Path, str]] = []
        self._pending: Future[None] | None = None

    def begin(self, group: _Group, executor: Executor) -> None:
        """Start to write a row group; wait for it before the next."""
        self._pending = executor.submit(self.write, group)

    def wait(self) -> None:
        """Wait until the row group is written."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def write(self, group: _Group) -> None:
        with phase("write"):
            rows = joined([batch for _, batch in group], _WRITTEN_ROWS)
            if group[0][0] is not None:
                rows = rows.add_column(0, self._layout[0].field(0), _run_ids(group))
            if self.part is None:
                path = Path(f"{self._path}-{len(self._parts)}.parquet")
                self.part = _Part(path, self._layout, small=rows.num_rows < SMALL_ROWS)
            self.part.write(rows)
            if self.part.groups == ROW_GROUPS_PER_PART and not self._whole:
                self._close_part()

    def close(self) -> list[tuple[Path, str]]:
        """Return parts with the SHA-256 of their content."""
        with phase("write"):
            self._close_part()
        return self._parts

    def _close_part(self) -> None:
        if self.part is not None:
            self._parts.append((self.part.path, self.part.close()))
            self.part = None


def _cut_runs(runs: Mapping[str, int], rows: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many of the first rows each run has, and of the rest."""
    first = {}
    for run_id, count in runs.items():
        first[run_id] = min(count, rows)
        rows -= first[run_id]
    return first, {run_id: count - first[run_id] for run_id, count in runs.items()}


def _run_ids(group: _Group) -> pa.Array:
    """Return the run of every row: one column for all batches, of which small runs have many."""
    runs = [run for of_batch, _ in group for run in (of_batch or {}).items()]
    places = np.repeat(np.arange(len(runs)), [count for _, count in runs])
    return pa.array([run_id for run_id, _ in runs], pa.string()).take(pa.array(places))


class _Part:
    """One Parquet file that is being written."""

    def __init__(self, path: Path, layout: _Layout, *, small: bool) -> None:
        self.path = path
        self.groups = 0
        schema, stored = layout
        self._file = _HashedFile(NewFile(path))
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), _SINK_BYTES)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema.remove_metadata(),  # Parquet would store it twice
            **stored,
            compression="lz4" if small else "zstd",
            write_batch_size=_WRITTEN_ROWS,
            max_rows_per_page=ROW_GROUP_ROWS,
        )
        self._writer.add_key_value_metadata(schema.metadata)

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
        self.groups += 1

    def close(self) -> str:
        """Complete the file; return the SHA-256 of its content, hex."""
        self._writer.close()
        self._sink.close()
        return self._file.digest.hexdigest()


class _HashedFile(io.RawIOBase):
    """A new file whose content is hashed while it is written."""

    def __init__(self, file: NewFile) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@functools.cache
def _layout(table: str, schema: SchemaName) -> _Layout:
    """Return how columns are stored; docs/parquet-layout.md gives the reasons.

    Words have no minimum and maximum: every row group has nearly all of them, and to find the
    minimum costs as much as to store them. The run id has them: rows are in its order.
    """
    stored, key = tables()[table].stored, [] if schema == "storage_schema" else [PARTITION_KEY]
    rising = [c.name for c in stored if c.rising]
    nested = {c.name: _NESTED.get(c.type.partition("(")[0], ()) for c in stored}
    coded = [c.name for c in stored if c.dictionary or c.type in {"INTEGER", "BIGINT"}]
    return getattr(tables()[table], schema), {
        "use_dictionary": [
            *key,
            *(name for name in coded if name not in rising),
            *(name + leaf for name, leaves in nested.items() for leaf in leaves),
        ],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "write_statistics": [
            *key,
            *(c.name for c in stored if not (c.dictionary or nested[c.name])),
        ],
    }
