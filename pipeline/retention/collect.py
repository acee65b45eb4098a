"""Removes what no manifest and no warehouse names, and what dead processes left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from pipeline.lake import Lake, Leftover, leftovers, remove_leftovers
from pipeline.models.state import recorded_state


def collect(lake: Lake, *, dry_run: bool = False) -> list[Leftover]:
    """Removes part files that nobody names, staging of dead writers, and temporary files.

    Spared is what a manifest or the current warehouse names, what a live writer holds, and what
    was written to within the last hour.

    Args:
        dry_run: Remove nothing.

    Returns:
        What was removed, or would be.

    Raises:
        LakeError: The manifests cannot be read.
    """
    with lake.lock("warehouse"):
        state = recorded_state(lake.warehouse)
        published = {p for parts in state.parts.values() for p in parts} if state else set()
        return leftovers(lake, published) if dry_run else remove_leftovers(lake, published)


def leftovers_table(found: Sequence[Leftover]) -> pa.Table:
    """Leftovers as a table: kind, path, files, bytes."""
    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("path", pa.string()),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
        ]
    )
    return pa.Table.from_pylist([asdict(leftover) for leftover in found], schema=schema)
