"""What it takes to write a lake's rows once more, when they lie in memory as Arrow.

    python -m tests.bench.writing LAKE FOLDER TABLE ...

Prints how many rows were written, and time and memory of it. A few row groups of each table are
written again and again, as many as there are and of the same size: memory does not grow.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.measure import own_times
from tracelake.base.memory_limit import processors
from tracelake.lake.layout import partition_of
from tracelake.lake.parquet import PartWriter
from tracelake.schema.tables import tables

_HELD = 4


def _groups(lake: Path, table: str) -> Iterator[pa.RecordBatch]:
    """As many batches as the table has row groups, and of their sizes."""
    files = map(pq.ParquetFile, lake.glob(f"{table}/*/*/*.parquet"))
    groups = [
        (file.metadata.row_group(i).num_rows, file, i)
        for file in files
        for i in range(file.metadata.num_row_groups)
    ]
    groups.sort(key=lambda group: -group[0])
    schema = tables()[table].storage_schema
    held = [
        file.read_row_group(i).select(schema.names).cast(schema).combine_chunks().to_batches()[0]
        for _, file, i in groups[:_HELD]
    ]
    for (rows, *_), batch in zip(groups, itertools.cycle(held), strict=False):
        yield batch.slice(0, rows)


def _main(lake: Path, folder: Path, names: list[str]) -> None:
    given = {name: list(_groups(lake, name)) for name in names}
    rows = {name: sum(batch.num_rows for batch in batches) for name, batches in given.items()}
    with ThreadPoolExecutor(processors()) as executor:
        writer = PartWriter(folder, executor)

        def write() -> None:
            for name, batches in given.items():
                writer.add(name, batches, "run")
            writer.close(partition_of("rank_trace", None))

        times = own_times(write)
    sys.stdout.write(json.dumps({"rows": rows, "times": times}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
