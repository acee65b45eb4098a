"""Read the rows of parts as one stream, in order of run."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.base.errors import LakeError
from tracelake.lake.layout import names_runs, run_of
from tracelake.lake.part_files import PartFiles
from tracelake.lake.record_batches import trimmed
from tracelake.schema.tables import PARTITION_KEY

# A row group is read in pieces: some dozen parts may be read at the same time.
_BATCH_ROWS = 1 << 14

Piece: TypeAlias = tuple[str, pa.RecordBatch]


def rows_of_runs(
    files: PartFiles, schema: pa.Schema, parts: Mapping[str, Collection[str]]
) -> Iterator[Piece]:
    """Return rows of a table with their run id, in order of run and then in their stored order.

    Args:
        schema: Schema of the rows: the run id and the table's columns.
        parts: Parts, those of one run in order of its rows; each with the runs that are left out.

    Raises:
        LakeError: A part is missing or damaged.
    """
    streams = [_of_part(files, part, schema, left_out) for part, left_out in parts.items()]
    return heapq.merge(*streams, key=itemgetter(0))


def _of_part(
    files: PartFiles, part: str, schema: pa.Schema, left_out: Collection[str]
) -> Iterator[Piece]:
    import pyarrow.compute as pc  # noqa: PLC0415 - a sixth of the time of a short query

    for batch in _batches(files, part):
        if not names_runs(part):
            yield run_of(part), _completed(batch, pa.repeat(run_of(part), batch.num_rows), schema)
            continue
        spans = pc.run_end_encode(batch.column(PARTITION_KEY))
        ends = [0, *spans.run_ends.to_pylist()]
        for run_id, (first, last) in zip(spans.values.to_pylist(), pairwise(ends), strict=True):
            if run_id not in left_out:
                rows = batch.slice(first, last - first)
                yield run_id, trimmed(_completed(rows, rows.column(PARTITION_KEY), schema))


def _batches(files: PartFiles, part: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part after a check of its hash: a new part must not hide damage."""
    with _opened(files, part) as file:
        if not files.is_intact(part):
            raise _unreadable(files, part, "the content differs from the hash in its name")
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            if batch.num_rows:
                yield batch


@contextmanager
def _opened(files: PartFiles, part: str) -> Iterator[pq.ParquetFile]:
    try:
        with files.open(part) as file:
            yield pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(files, part, str(error)) from error


def _unreadable(files: PartFiles, part: str, why: str) -> LakeError:
    return LakeError(
        f"a part cannot be read: {why}",
        path=f"{files.base}/{part}",
        hint="find the repair with: tracelake check",
    )


def _completed(batch: pa.RecordBatch, key: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with their run id; a column that an earlier version lacks is NULL."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True)) | {PARTITION_KEY: key}
    columns = [given[f.name] if f.name in given else _nulls(batch.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        codes = pa.nulls(rows, kind.index_type)
        return pa.DictionaryArray.from_arrays(codes, pa.array([], kind.value_type))
    return pa.nulls(rows, kind)
