"""One layout of Parquet, written and read in a process of its own.

    python -m tests.bench.layouts LAYOUT ROWS FOLDER TIMES

Prints, by case, what was answered and the time of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.measure import own_times
from tracelake.lake import parquet
from tracelake.lake.layout import partition_of
from tracelake.schema.tables import tables

TABLE = "comms"
CHOSEN = "tracelake"

ACCESSES = {
    "a run's columns": "max(rank), max(step), max(seq), max(sub_seq), max(collective),"
    " max(group_kind), max(parent_op), min(start_ns), max(end_ns), sum(duration_ns), sum(bytes)",
    "one stage": "stage, step, count(*), sum(duration_ns) WHERE stage = 0 GROUP BY ALL",
    "one collective": "group_kind, bytes, count(*), sum(duration_ns)"
    " WHERE collective = 'all_reduce' GROUP BY ALL",
    "one rank": "seq, sub_seq, collective, start_ns, end_ns, duration_ns, bytes WHERE rank = 1",
}
"""What models ask of the rows: name -> columns and condition."""


def _chosen(rows: pa.Table, folder: Path) -> None:
    with ThreadPoolExecutor(1) as helper:
        writer = parquet.PartWriter(folder, helper)
        writer.add(TABLE, rows.to_batches(), "run")
        writer.close(partition_of("rank_trace", None))


def _small_groups(rows: pa.Table, folder: Path) -> None:
    parquet.ROW_GROUP_ROWS = 1 << 16
    _chosen(rows, folder)


def _sorted(rows: pa.Table, folder: Path) -> None:
    names = ("collective", "stage", "rank", "line")
    keys = pa.table([pc.cast(rows["collective"], pa.string()), *map(rows.column, names[1:])], names)
    order = pc.sort_indices(keys, [(name, "ascending") for name in names])
    _chosen(rows.take(order), folder)


def _by_options(**options: Any) -> Callable[[pa.Table, Path], None]:
    def write(rows: pa.Table, folder: Path) -> None:
        pq.write_table(
            rows.unify_dictionaries().combine_chunks(),
            folder / f"{TABLE}.parquet",
            row_group_size=parquet.ROW_GROUP_ROWS,
            **options,
        )

    return write


_STORED = tables()[TABLE].stored
LAYOUTS: dict[str, Callable[[pa.Table, Path], None]] = {
    CHOSEN: _chosen,
    "sorted by collective": _sorted,
    "row groups of 65,536": _small_groups,
    "default encodings, zstd": _by_options(compression="zstd"),
    "default encodings, LZ4": _by_options(compression="lz4"),
    "integers as differences, zstd": _by_options(
        compression="zstd",
        use_dictionary=[c.name for c in _STORED if c.dictionary],
        column_encoding={
            c.name: "DELTA_BINARY_PACKED" for c in _STORED if c.type in {"INTEGER", "BIGINT"}
        },
    ),
}


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """A connection that uses one thread."""
    return duckdb.connect(config={"threads": 1})


def answer(connection: duckdb.DuckDBPyConnection, access: str, source: Path) -> str:
    """Digest of what an access gives of a folder of Parquet, or of an Arrow file."""
    if source.is_dir():
        found = f"read_parquet('{source}/*.parquet')"
    else:
        connection.register("rows", _rows_of(source))
        found = "rows"
    columns, where, condition = ACCESSES[access].partition(" WHERE ")
    answered = connection.execute(f"SELECT {columns} FROM {found}{where}{condition}").fetchall()
    return hashlib.sha256(repr(sorted(answered, key=repr)).encode()).hexdigest()


def _rows_of(source: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(source))).read_all()


def _timed(action: Callable[[], str], times: int) -> tuple[str, dict[str, float]]:
    """What an action gives, and the mean time of doing it, once it has been done."""
    return action(), own_times(action, times)


def _main(layout: str, source: Path, folder: Path, times: int) -> None:
    rows, target = _rows_of(source), folder / layout

    def write() -> str:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        LAYOUTS[layout](rows, target)
        return ""

    def read(access: str) -> Callable[[], str]:
        return lambda: answer(connection, access, target)

    measured = {"write": _timed(write, times)}
    connection = open_duckdb()
    for access in ACCESSES:
        measured[access] = _timed(read(access), times)
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
