"""What it takes to write a lake's rows once more, when they lie in memory as Arrow.

    python -m tests.bench.writing LAKE FOLDER TABLE ...

Prints how many rows were written, and time and memory of it. A few row groups of each table are
written again and again, as many as there are and of the same size: memory does not grow.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.parts import PartWriter
from pipeline.schema import tables

_HELD = 4


def _groups(lake: Path, table: str) -> Iterator[pa.RecordBatch]:
    """As many batches as the table has row groups, and of their sizes."""
    files = [pq.ParquetFile(path) for path in sorted(lake.glob(f"{table}/*/*.parquet"))]
    places = [(file, i) for file in files for i in range(file.metadata.num_row_groups)]
    sizes = sorted((file.metadata.row_group(i).num_rows for file, i in places), reverse=True)
    places.sort(key=lambda place: -place[0].metadata.row_group(place[1]).num_rows)
    schema = tables()[table].storage_schema
    held = [
        file.read_row_group(i).select(schema.names).cast(schema).combine_chunks().to_batches()[0]
        for file, i in places[:_HELD]
    ]
    return (batch.slice(0, size) for batch, size in zip(itertools.cycle(held), sizes, strict=False))


def _main(lake: Path, folder: Path, names: list[str]) -> None:
    given = {name: _groups(lake, name) for name in names}
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        writer = PartWriter("run", folder, executor)
        for name, batches in given.items():
            writer.add(name, batches)
        writer.close()
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    times = {
        "wall_s": wall,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
        "peak_bytes": after.ru_maxrss * 1024,
    }
    sys.stdout.write(json.dumps({"rows": writer.rows, "times": times}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
