"""Merge the small parts of a lake into packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import pyarrow as pa

from tracelake.lake import Lake
from tracelake.lake.packing.steps import Packed, next_step, rewrite_packs, sizes, take
from tracelake.schema.tables import tables


def compact(
    lake: Lake, *, dry_run: bool = False, progress: Callable[[str], None] | None = None
) -> list[Packed]:
    """Put the rows of small parts into packs; the next build removes the old files.

    Each step is committed by itself: if it is stopped between two steps, the lake is intact. Runs
    of an earlier version of the schemas are not packed.

    Args:
        dry_run: Write nothing.
        progress: Called with the table that is being packed.

    Returns:
        The steps that were done, or would be.

    Raises:
        LakeError: The lake cannot be read or written, or a part is damaged.
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
    """Return the steps as a table: table, runs, files and bytes before and after."""
    numbers = ("runs", "files_before", "bytes_before", "files_after", "bytes_after")
    schema = pa.schema([("table", pa.string()), *((name, pa.int64()) for name in numbers)])
    return pa.Table.from_pylist([asdict(one) for one in packed], schema=schema)
