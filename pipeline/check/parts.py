"""Part files against the manifests that name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.check.findings import COLLECT, Finding, error, read_again, some
from pipeline.lake import Lake, Snapshot, is_intact, is_pack, loose_parts, stored_parts
from pipeline.schema import PARTITION_KEY, tables


def check_parts(lake: Lake, snapshot: Snapshot, *, quick: bool) -> Iterator[Finding]:
    """Every part of a manifest is there, is what was written, and has its table's schema.

    Args:
        quick: Leave out whether it is what was written, for which all of it is read.
    """
    missing, damaged, other, unlisted = [], [], [], []
    for table in tables().values():
        for part in snapshot.parts(table.name):
            path = lake.root / part
            schema = table.packed_schema if is_pack(part) else table.storage_schema
            if not path.is_file():
                missing.append(part)
                continue
            if not quick and not is_intact(path):
                damaged.append(part)
            elif not _schema_fits(path, schema, lacking=part in snapshot.older):
                other.append(part)
            elif not quick and is_pack(part) and _runs_in(path) != set(snapshot.packs.runs[part]):
                unlisted.append(part)
    for check, parts, what in (
        ("parts_exist", missing, "part files are gone"),
        ("parts_intact", damaged, "part files differ from what was written"),
        ("parts_schema", other, "part files have another schema"),
        ("packs_listed", unlisted, "packs hold other runs than their list says"),
    ):
        if parts:
            yield error(check, f"{what}: {some(parts)}", len(parts), _read_again(snapshot, parts))


def check_strays(lake: Lake, snapshot: Snapshot, published: Collection[str]) -> Iterator[Finding]:
    """Every part is named by a manifest or the warehouse, or known to go with the next build.

    Args:
        published: Part files that the warehouse names.
    """
    there = set(stored_parts(lake.root))
    extra = sorted(there - snapshot.all_parts.union(published) - loose_parts(lake))
    if extra:
        message = f"part files that no manifest names: {some(extra)}"
        yield Finding("parts_named", "warning", message, len(extra), COLLECT)


def _read_again(snapshot: Snapshot, parts: Collection[str]) -> str:
    harmed = set(parts)
    runs = [
        run_id
        for run_id in snapshot.runs
        if harmed.intersection(chain.from_iterable(snapshot.parts_of(run_id).values()))
    ]
    if not runs:  # the list of what was passed over
        return "delete LAKE/_manifest/_skipped.json, then ingest again"
    return read_again(runs)


def _runs_in(path: Path) -> set[str]:
    """Runs that a pack has rows of."""
    found: set[str] = set()
    for batch in pq.ParquetFile(path).iter_batches(columns=[PARTITION_KEY]):
        found.update(batch.column(0).unique().to_pylist())
    return found


def _schema_fits(path: Path, schema: pa.Schema, *, lacking: bool) -> bool:
    """Whether a part has its table's schema, or what there was of it in an earlier version."""
    try:
        found: pa.Schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return False
    if lacking:
        return all(f.name in schema.names and f.type == schema.field(f.name).type for f in found)
    return bool(found.equals(schema))
