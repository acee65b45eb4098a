"""Do one step of packing: choose files, write packs, commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

from tracelake.base.errors import LakeError
from tracelake.base.files import make_folder
from tracelake.lake import Lake, Packs, Snapshot
from tracelake.lake.packing.rows import Piece, count_rows, rows_of_runs
from tracelake.lake.parquet import ROW_GROUP_ROWS, PartWriter
from tracelake.schema.tables import tables

# Opening a part takes as long as reading 128 KiB of it: a file of eight times that size costs a
# reader little.
SMALL_BYTES = 1 << 20
# A pack ends with the run that reaches this number of rows. When one of its runs is removed, the
# pack is rewritten in some seconds.
PACK_ROWS = 8 * ROW_GROUP_ROWS
# Packs with fewer rows are rewritten together with new runs, this many at once.
_THIN_ROWS = PACK_ROWS // 2
_THIN_PACKS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """Files of a table whose rows are packed.

    Attributes:
        runs: Runs whose own parts are packed.
        packs: Packs that are rewritten.
    """

    table: str
    runs: tuple[str, ...]
    packs: tuple[str, ...]

    def superseded(self, snapshot: Snapshot) -> list[str]:
        """Return the files that the step replaces."""
        own = (snapshot.runs[run_id].parts[self.table] for run_id in self.runs)
        return [*chain.from_iterable(own), *self.packs]


@dataclass(frozen=True, slots=True)
class Packed:
    """The result of a step.

    Attributes:
        runs: Runs that had their own files.
        files_after: None if nothing was written; likewise `bytes_after`.
    """

    table: str
    runs: int
    files_before: int
    bytes_before: int
    files_after: int | None = None
    bytes_after: int | None = None


def rewrite_packs(lake: Lake) -> None:
    """Rewrite packs that have rows of runs that were replaced or dropped.

    A pack that cannot be read stays: nothing reads those rows, and a check finds it. The caller
    holds the lake's warehouse lock.
    """
    unreadable: set[str] = set()
    while step := _dead_step(snapshot := lake.snapshot(), unreadable):
        try:
            take(lake, snapshot, step)
        except LakeError:
            unreadable.update(step.packs)


def next_step(lake: Lake, snapshot: Snapshot, table: str) -> Step | None:
    """Return the next step of a table: small parts, and packs that are far from full.

    Raises:
        LakeError: A pack is missing or damaged.
    """
    small = _small(lake, snapshot, table)
    thin = [
        pack
        for pack, runs in sorted(snapshot.packs.runs.items())
        if pack.startswith(f"{table}/")
        and all(snapshot.runs[run_id].is_current for run_id in runs if run_id in snapshot.runs)
        and count_rows(lake.part_files, pack) < _THIN_ROWS
    ]
    step = Step(table, small, tuple(thin[:_THIN_PACKS]))
    return step if len(step.superseded(snapshot)) > 1 else None


def take(lake: Lake, snapshot: Snapshot, step: Step) -> Packed:
    """Do a step, all or nothing.

    Raises:
        LakeError: A part is missing or damaged.
    """
    superseded = step.superseded(snapshot)
    before = sizes(lake, superseded)
    with lake.staging("compact") as folder:
        staged, runs = _write(lake, snapshot, step, folder)
        kept = {p: r for p, r in snapshot.packs.runs.items() if p not in step.packs}
        generations = {run_id: snapshot.runs[run_id].generation for run_id in step.runs}
        packs = Packs({**snapshot.packs.generations, **generations}, {**kept, **runs})
        written = sum(path.stat().st_size for path in staged.values())
        # A pack may be unchanged: then nothing was removed.
        lake.commit_packs(packs, staged, [part for part in superseded if part not in staged])
    return Packed(step.table, len(step.runs), len(superseded), before, len(staged), written)


def sizes(lake: Lake, parts: Iterable[str]) -> int:
    """Return bytes of those part files that exist."""
    return sum(lake.part_files.sizes(list(parts)).values())


def _dead_step(snapshot: Snapshot, unreadable: set[str]) -> Step | None:
    for pack, runs in sorted(snapshot.packs.runs.items()):
        if pack not in unreadable and not snapshot.dead.isdisjoint(runs):
            return Step(pack.partition("/")[0], (), (pack,))
    return None


def _small(lake: Lake, snapshot: Snapshot, table: str) -> tuple[str, ...]:
    """Return runs whose own parts in a table are all small and of this version."""
    own = {}
    for run_id, entry in snapshot.runs.items():
        parts = entry.parts.get(table, ())
        # A run whose old rows are still in a pack waits until they are removed.
        settled = entry.is_current and run_id not in snapshot.dead
        if parts and settled and snapshot.parts_of(run_id)[table] == parts:
            own[run_id] = parts
    there = lake.part_files.sizes(list(chain.from_iterable(own.values())))
    return tuple(
        run_id
        for run_id, parts in own.items()
        if sum(there.get(part, 0) for part in parts) < SMALL_BYTES
    )


def _write(
    lake: Lake, snapshot: Snapshot, step: Step, folder: Path
) -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """Write packs; return final path -> staged file, and pack -> its runs."""
    staged: dict[str, Path] = {}
    runs: dict[str, tuple[str, ...]] = {}
    pieces = groupby(_pieces(lake, snapshot, step), itemgetter(0))
    with ThreadPoolExecutor(1, thread_name_prefix="pack") as helper:
        while True:
            place = folder / str(len(staged))
            make_folder(place)
            written, named = _write_one(
                step.table, pieces, PartWriter(None, place, helper, packed=True)
            )
            if not named:
                return staged, runs
            staged |= written
            runs |= dict.fromkeys(written, named)


def _write_one(
    table: str, pieces: Iterator[tuple[str, Iterator[Piece]]], writer: PartWriter
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Fill a pack with whole runs."""
    named = []
    for run_id, its in pieces:
        named.append(run_id)
        writer.add(table, (batch for _, batch in its))
        if writer.rows[table] >= PACK_ROWS:
            break
    return writer.close(), tuple(named)


def _pieces(lake: Lake, snapshot: Snapshot, step: Step) -> Iterator[Piece]:
    table = step.table
    own = ((run_id, part) for run_id in step.runs for part in snapshot.runs[run_id].parts[table])
    schema = tables()[table].packed_schema
    runs = snapshot.packs.runs
    # A pack without current runs may be missing.
    packs = [pack for pack in step.packs if not snapshot.dead.issuperset(runs[pack])]
    return rows_of_runs(lake.part_files, schema, own, packs, snapshot.dead)
