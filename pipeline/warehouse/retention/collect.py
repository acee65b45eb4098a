"""Remove files that no manifest and no warehouse names, and files of dead processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from tracelake.lake import Lake, Leftover, leftovers, remove_leftovers
from tracelake.models.state import recorded_state


def collect(lake: Lake, *, dry_run: bool = False) -> list[Leftover]:
    """Remove part files that nothing names, staging of dead writers, and temporary files.

    It does not remove files that a manifest or the current warehouse names, that a live writer
    locks, or that were written to within the last hour.

    Args:
        dry_run: Remove nothing.

    Returns:
        The files that were removed, or would be.

    Raises:
        LakeError: The manifests cannot be read.
    """
    with lake.lock("warehouse"):
        state = recorded_state(lake.warehouse)
        published = {p for parts in state.parts.values() for p in parts} if state else set()
        return leftovers(lake, published) if dry_run else remove_leftovers(lake, published)


def leftovers_table(found: Sequence[Leftover]) -> pa.Table:
    """Return leftovers as a table: kind, path, files, bytes."""
    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("path", pa.string()),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
        ]
    )
    return pa.Table.from_pylist([asdict(leftover) for leftover in found], schema=schema)
