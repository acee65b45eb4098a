"""Find which inputs of a lake have the content of another one.

Every content has one original, decided from the runs that the lake holds and from nothing else:
lakes that hold the same inputs agree on it, in whatever order the inputs came. The original is of
the run with the most contents, so that a run whose every input is in a richer run is a copy; among
equal runs of one with a date, which alone has a place in the history of its configuration; then of
one that is not called a copy, with the shortest path, of these the first by name. Within a run the
first source is the original.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.base.files import make_folder
from tracelake.ingest.identity import original_run_order
from tracelake.lake.layout import UNPARTITIONED, names_runs, partition_in
from tracelake.lake.losses import find_losses
from tracelake.lake.manifest import Change, RunEntry, Snapshot, generation_of, label_of
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.lake.rewriting import rows_of_runs
from tracelake.lake.store import Lake
from tracelake.schema.tables import PARTITION_KEY, tables

_SOURCES = "sources"

# By source_id, the path of the original; None for an original.
_Originals = tuple[str | None, ...]


def settle_duplicates(lake: Lake, lost: Collection[str] = ()) -> None:
    """Bring `sources.duplicate_of` up to date in every run of a lake.

    Only runs whose answer changed are written, and of them only the table
    `sources`. A run that another process replaces meanwhile is left to that process.

    Args:
        lost: Runs whose rows cannot be read: none of them is an original, so that a copy counts.

    Raises:
        LakeError: The lake cannot be read or written, or a part is not what was written.
    """
    snapshot = lake.snapshot()
    left = {run_id: run for run_id, run in snapshot.runs.items() if run_id not in lost}
    snapshot = replace(snapshot, runs=left)
    while changed := _changed(snapshot):
        concerned = {run_id: snapshot.runs[run_id] for run_id in changed}
        losses = find_losses(
            lake.part_files, replace(snapshot, runs=concerned, skipped=()), lake.verified
        )
        if not losses.runs:
            break
        snapshot = losses.left(snapshot)  # a build leaves these runs out
    if not changed:
        return
    with (
        lake.staging("duplicates") as folder,
        ThreadPoolExecutor(LANES, thread_name_prefix="duplicates") as helper,
    ):
        lake.commit_all(list(_changes(lake, snapshot, changed, folder, helper)))


def _changed(snapshot: Snapshot) -> dict[str, _Originals]:
    """Return the runs whose sources name wrong originals, with the right ones."""
    shared, concerned = _shared(snapshot)
    firsts = {run_id: _first_of_each(snapshot.runs[run_id]) for run_id in concerned}

    def order(run_id: str) -> tuple[object, str]:
        stamps = (record["facts"]["stamp"] for record in snapshot.runs[run_id].sources)
        return original_run_order(firsts[run_id].values(), stamps), run_id

    originals = {content: min(runs, key=order) for content, runs in shared.items()}
    changed = {}
    for run_id in sorted(concerned):
        entry = snapshot.runs[run_id]
        right = tuple(_originals(entry, firsts, originals))
        if right != tuple(record["duplicate_of"] for record in entry.sources):
            changed[run_id] = right
    return changed


def _shared(snapshot: Snapshot) -> tuple[dict[str, set[str]], set[str]]:
    """Return contents that several runs have, and runs in which a source is or was a duplicate."""
    holders: dict[str, str] = {}
    shared: dict[str, set[str]] = defaultdict(set)
    concerned: set[str] = set()
    for run_id, entry in snapshot.runs.items():
        for record in entry.sources:
            if record["duplicate_of"] is not None:
                concerned.add(run_id)
            if not record["bytes"]:
                continue
            content = record["content_hash"]
            holder = holders.get(content)
            if holder is None:
                holders[content] = run_id
            elif holder == run_id:
                concerned.add(run_id)
            else:
                shared[content].update((holder, run_id))
    concerned.update(*shared.values())
    return shared, concerned


def _first_of_each(entry: RunEntry) -> dict[str, str]:
    """Return, by content, the first source of a run that has it; no bytes are no content."""
    return {
        record["content_hash"]: label_of(record)
        for record in reversed(entry.sources)
        if record["bytes"]
    }


def _originals(
    entry: RunEntry, firsts: Mapping[str, Mapping[str, str]], originals: Mapping[str, str]
) -> Iterator[str | None]:
    met: set[str] = set()
    for record in entry.sources:
        content = record["content_hash"]
        if not record["bytes"]:
            yield None
        elif content in met:
            yield firsts[entry.run_id][content]
        else:
            met.add(content)
            original = originals.get(content, entry.run_id)
            yield None if original == entry.run_id else firsts[original][content]


def _changes(
    lake: Lake,
    snapshot: Snapshot,
    changed: Mapping[str, _Originals],
    folder: Path,
    helper: Executor,
) -> Iterator[Change]:
    """Yield the changes of groups, whose runs get a part with their sources."""
    places: dict[tuple[str, str], list[RunEntry]] = defaultdict(list)
    for run_id in sorted(changed):
        run = snapshot.runs[run_id]
        (part, *_) = run.parts[_SOURCES]
        # Earlier versions had no partitions but a folder per run.
        places[run.group, partition_in(part) if names_runs(part) else UNPARTITIONED].append(run)
    for number, ((group, partition), runs) in enumerate(places.items()):
        make_folder(folder / str(number))
        writer = PartWriter(folder / str(number), helper, whole=True)
        entries = []
        for run, rows in zip(runs, _sources(lake, snapshot, runs), strict=True):
            originals = changed[run.run_id]
            for row, original in zip(rows, originals, strict=True):
                row["duplicate_of"] = original
            schema = tables()[_SOURCES].storage_schema
            writer.add(_SOURCES, [pa.RecordBatch.from_pylist(rows, schema=schema)], run.run_id)
            records = zip(run.sources, originals, strict=True)
            entries.append(
                replace(
                    run,
                    generation=generation_of(run.options, rows),
                    sources=tuple({**record, "duplicate_of": o} for record, o in records),
                )
            )
        staged = writer.close(partition)
        new = [replace(run, parts={**run.parts, _SOURCES: tuple(staged)}) for run in entries]
        yield Change(group, new, staged, over=runs)


def _sources(
    lake: Lake, snapshot: Snapshot, runs: Sequence[RunEntry]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of `sources` of each of these runs, which are in order of run id."""
    parts: dict[str, set[str]] = {}
    for run in runs:
        for part in run.parts[_SOURCES]:
            others = parts.setdefault(part, set(snapshot.runs_of.get(part, ())))
            others.discard(run.run_id)
    rows = rows_of_runs(lake.part_files, tables()[_SOURCES].part_schema, parts)
    for _, batches in itertools.groupby(rows, itemgetter(0)):
        yield [
            {name: value for name, value in row.items() if name != PARTITION_KEY}
            for _, batch in batches
            for row in batch.to_pylist()
        ]
