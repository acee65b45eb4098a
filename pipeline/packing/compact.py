"""Packs the small parts of a lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import pyarrow as pa

from pipeline.lake import Lake
from pipeline.packing.steps import Packed, next_step, rewrite_packs, sizes, take
from pipeline.schema import tables


def compact(
    lake: Lake, *, dry_run: bool = False, progress: Callable[[str], None] | None = None
) -> list[Packed]:
    """Puts the rows of small parts into packs; the old files go with the next build.

    A step at a time is committed: whoever is stopped between two has a whole lake. Runs of an
    earlier version of the schemas keep their parts.

    Args:
        dry_run: Write nothing.
        progress: Told the table that is being packed.

    Returns:
        What was packed, or would be.

    Raises:
        LakeError: The lake cannot be read or written, or a part is not what was written.
    """
    done: list[Packed] = []
    with lake.lock("warehouse"):
        if not dry_run:
            rewrite_packs(lake)
        for table in tables():
            snapshot = lake.snapshot()
            while step := next_step(lake, snapshot, table):
                if progress:
                    progress(f"packing {table}")
                if dry_run:
                    parts = step.superseded(snapshot)
                    done.append(Packed(table, len(step.runs), len(parts), sizes(lake, parts)))
                    break
                done.append(take(lake, snapshot, step))
                snapshot = lake.snapshot()
    return done


def compaction_table(packed: Sequence[Packed]) -> pa.Table:
    """What was packed as a table: table, runs, files and bytes before and after."""
    numbers = ("runs", "files_before", "bytes_before", "files_after", "bytes_after")
    schema = pa.schema([("table", pa.string()), *((name, pa.int64()) for name in numbers)])
    return pa.Table.from_pylist([asdict(one) for one in packed], schema=schema)
