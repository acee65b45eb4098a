"""Find which inputs of a lake have the content of another one.

Every content has one original, decided from the runs that the lake holds and from nothing else:
lakes that hold the same inputs agree on it, in whatever order the inputs came. The original is of
the run with the most contents, and among equal runs of the one with the smallest path, so that a
run whose every input is in a richer run is a copy. Within a run the first source is the original.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.base.files import make_folder
from tracelake.lake import (
    Change,
    Lake,
    RunEntry,
    Snapshot,
    find_losses,
    generation_of,
    is_pack,
    label_of,
)
from tracelake.lake.packing import rows_of_runs
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.schema.tables import tables

_SOURCES = "sources"

# By source_id, the path of the original; None for an original.
_Originals = tuple[str | None, ...]


def settle_duplicates(lake: Lake, lost: Collection[str] = ()) -> None:
    """Bring `sources.duplicate_of` up to date in every run of a lake.

    Only runs whose answer changed are written, and of them only the table `sources`, unless their
    rows are in packs. A run that another process replaces meanwhile is left to that process.

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
        writers = {}
        for run_id in changed:
            make_folder(folder / run_id)
            writers[run_id] = PartWriter(run_id, folder / run_id, helper)
        generations = _write(lake, snapshot, changed, writers)
        lake.commit_all(_changes(snapshot, changed, generations, writers))


def _changed(snapshot: Snapshot) -> dict[str, _Originals]:
    """Runs whose sources name other originals than they should, with the right ones."""
    shared, concerned = _shared(snapshot)
    firsts = {run_id: _first_of_each(snapshot.runs[run_id]) for run_id in concerned}

    def order(run_id: str) -> tuple[int, str, str]:
        first = firsts[run_id]
        return -len(first), min(first.values()), run_id

    originals = {content: min(runs, key=order) for content, runs in shared.items()}
    changed = {}
    for run_id in sorted(concerned):
        entry = snapshot.runs[run_id]
        right = tuple(_originals(entry, firsts, originals))
        if right != tuple(record["duplicate_of"] for record in entry.sources):
            changed[run_id] = right
    return changed


def _shared(snapshot: Snapshot) -> tuple[dict[str, set[str]], set[str]]:
    """Contents that several runs have, and all runs in which a source is or was a duplicate."""
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
    """Contents of a run -> path of the first source that has it; a source of no bytes has none."""
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


def _write(
    lake: Lake,
    snapshot: Snapshot,
    changed: Mapping[str, _Originals],
    writers: Mapping[str, PartWriter],
) -> dict[str, str]:
    """Writes the sources of runs, and all their rows that are in packs; gives new generations."""
    generations = {}
    for table in tables():
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for run_id, batch in _rows(lake, snapshot, table, sorted(changed)):
            if table == _SOURCES:
                rows[run_id] += batch.to_pylist()
            else:
                writers[run_id].add(table, [batch])
        for run_id, sources in rows.items():
            for row, original in zip(sources, changed[run_id], strict=True):
                row["duplicate_of"] = original
            schema = tables()[_SOURCES].storage_schema
            writers[run_id].add(_SOURCES, [pa.RecordBatch.from_pylist(sources, schema=schema)])
            generations[run_id] = generation_of(snapshot.runs[run_id].options, sources)
    return generations


def _rows(
    lake: Lake, snapshot: Snapshot, table: str, run_ids: Sequence[str]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    own, packs = [], set()
    for run_id in run_ids:
        for part in snapshot.parts_of(run_id).get(table, ()):
            if is_pack(part):
                packs.add(part)
            elif table == _SOURCES:
                own.append((run_id, part))
    others = {run_id for pack in packs for run_id in snapshot.packs.runs[pack]}.difference(run_ids)
    schema = tables()[table].storage_schema
    for run_id, batch in rows_of_runs(
        lake.part_files,
        tables()[table].packed_schema,
        own,
        sorted(packs),
        others | snapshot.dead,
    ):
        yield run_id, pa.RecordBatch.from_arrays(batch.columns[1:], schema=schema)


def _changes(
    snapshot: Snapshot,
    changed: Mapping[str, _Originals],
    generations: Mapping[str, str],
    writers: Mapping[str, PartWriter],
) -> list[Change]:
    """Returns a change per group: its runs with the parts that were written for them."""
    entries: dict[str, list[RunEntry]] = defaultdict(list)
    staged: dict[str, dict[str, Path]] = defaultdict(dict)
    for run_id, originals in changed.items():
        entry = snapshot.runs[run_id]
        parts = writers[run_id].close()
        written: dict[str, tuple[str, ...]] = {}
        for part in sorted(parts):
            table = part.split("/", 1)[0]
            written[table] = (*written.get(table, ()), part)
        sources = tuple(
            {**record, "duplicate_of": original}
            for record, original in zip(entry.sources, originals, strict=True)
        )
        entries[entry.group].append(
            replace(
                entry,
                generation=generations[run_id],
                parts={**entry.parts, **written},
                sources=sources,
            )
        )
        staged[entry.group].update(parts)
    return [
        Change(
            group,
            runs,
            staged[group],
            {},
            over={run.run_id: snapshot.runs[run.run_id].generation for run in runs},
        )
        for group, runs in entries.items()
    ]
