"""Check part files against the manifests that name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.lake.layout import names_runs
from tracelake.lake.losses import DAMAGED, MISSING, Losses, verify
from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import PartFiles
from tracelake.lake.store import Lake
from tracelake.models.state import recorded
from tracelake.schema.tables import PARTITION_KEY, tables
from tracelake.warehouse.check.findings import BUILD, COLLECT, Finding, drop, error, some


def check_parts(
    lake: Lake, snapshot: Snapshot, losses: Losses, *, quick: bool
) -> Iterator[Finding]:
    """Check that every part of a manifest exists, is intact, and has its table's schema.

    Args:
        losses: What is lost of the snapshot.
        quick: Do not read which runs a part has.
    """
    other, unlisted = [], []
    files = lake.part_files
    for table in tables().values():
        for part in snapshot.parts(table.name):
            schema = table.part_schema if names_runs(part) else table.storage_schema
            if part in losses.parts:
                continue
            if not _schema_fits(files, part, schema, lacking=part in snapshot.older):
                other.append(part)
            elif (
                not quick
                and names_runs(part)
                and _runs_in(files, part) != set(snapshot.runs_of.get(part, ()))
            ):
                unlisted.append(part)
    for check, damage in (("parts_exist", MISSING), ("parts_intact", DAMAGED)):
        if parts := [part for part, found in losses.parts.items() if found == damage]:
            runs = [run for run, lost in losses.runs.items() if not set(parts).isdisjoint(lost)]
            of_runs = f" (of {some(runs)})" if runs else ""
            message = f"part files are {damage}: {some(parts)}{of_runs}"
            without = f"; without it: {drop(runs)}" if runs else ""
            repair = f"give their input to tracelake run again{without}"
            yield error(check, message, len(parts), repair)
    for check, parts, what in (
        ("parts_schema", other, "part files have another schema"),
        ("parts_listed", unlisted, "part files have other runs than their manifest says"),
    ):
        if parts:
            yield error(check, f"{what}: {some(parts)}", len(parts), _read_again(snapshot, parts))


def check_model_parts(lake: Lake, *, quick: bool) -> Iterator[Finding]:
    """Check that the parts of models that the warehouse names exist, and are intact.

    Args:
        quick: Do not read those that have not changed since the build.
    """
    record = recorded(lake.warehouse)
    named = record.model_parts
    lost, _ = verify(lake.part_files, named.keys(), record.marks if quick else {})
    if lost:
        runs = sorted({run_id for part in lost for run_id in named[part]})
        message = f"part files of models are missing or damaged: {some(sorted(lost))}"
        yield error("model_parts", f"{message} (of {some(runs)})", len(lost), BUILD)


def check_strays(lake: Lake, snapshot: Snapshot, published: Collection[str]) -> Iterator[Finding]:
    """Check that a manifest or the warehouse names every part, or that the next build removes it.

    Args:
        published: Part files that the warehouse names.
    """
    there = {found.part for found in lake.part_files.stored() if found.settled}
    extra = sorted(there - snapshot.all_parts.union(published) - {*(lake.unlisted.listed() or ())})
    if extra:
        message = f"part files that no manifest names: {some(extra)}"
        yield Finding("parts_named", "warning", message, len(extra), COLLECT)


def _read_again(snapshot: Snapshot, parts: Collection[str]) -> str:
    harmed = set(parts)
    runs = [run_id for run_id, run in snapshot.runs.items() if harmed.intersection(run.all_parts)]
    if not runs:  # the list of skipped inputs
        return "delete LAKE/_manifest/_skipped.json, then ingest again"
    return f"{drop(runs)}, then ingest their input again"


def _runs_in(files: PartFiles, part: str) -> set[str]:
    """Return the runs that a part has rows of."""
    found: set[str] = set()
    with files.open(part) as opened:
        for batch in pq.ParquetFile(opened).iter_batches(columns=[PARTITION_KEY]):
            found.update(batch.column(0).unique().to_pylist())
    return found


def _schema_fits(files: PartFiles, part: str, schema: pa.Schema, *, lacking: bool) -> bool:
    """Return whether a part has its table's schema, or that of an earlier version."""
    try:
        with files.open(part) as opened:
            found: pa.Schema = pq.read_schema(opened)
    except (pa.ArrowException, OSError):
        return False
    if not lacking and found.names != schema.names:
        return False
    return all(f.name in schema.names and f.type == schema.field(f.name).type for f in found)
