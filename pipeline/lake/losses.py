"""Find part files that are missing, damaged or without their manifest, and their runs.

The name of a part has the hash of its content. A part is hashed when it is first read, and again
when its size or modification date has changed.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain

from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import Mark, PartFiles
from tracelake.schema.tables import PARTITION_KEY, Column, Table, columns

MISSING, DAMAGED, UNNAMED = "missing", "damaged", "without a manifest"
# A prime number: jobs that are run every n-th day, for any n below it, verify all parts as well.
SHARES = 31


@dataclass(frozen=True)
class Losses:
    """Parts that cannot be read.

    Attributes:
        parts: Part file -> missing, damaged, or without a manifest.
        runs: Run -> those of these parts that have its rows.
        marks: Of every other part, its state when it was verified.
    """

    parts: Mapping[str, str]
    runs: Mapping[str, tuple[str, ...]]
    marks: Mapping[str, Mark]

    def among(self, parts: Collection[str]) -> Losses:
        """Return what is lost of these parts."""
        lost = {part: damage for part, damage in self.parts.items() if part in parts}
        runs = {run: tuple(p for p in named if p in lost) for run, named in self.runs.items()}
        return Losses(lost, {run: named for run, named in runs.items() if named}, self.marks)

    def and_unnamed(self, runs: Mapping[str, tuple[str, ...]]) -> Losses:
        """Return these and what has lost its manifest: the parts of these runs."""
        parts = dict.fromkeys(chain.from_iterable(runs.values()), UNNAMED)
        return Losses({**self.parts, **parts}, {**self.runs, **runs}, self.marks)

    def left(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without the lost runs and parts."""
        if not self.parts:
            return snapshot
        return replace(
            snapshot,
            runs={run_id: run for run_id, run in snapshot.runs.items() if run_id not in self.runs},
            skipped=tuple(part for part in snapshot.skipped if part not in self.parts),
        )

    def rows(self) -> list[tuple[str | None, str, str]]:
        """Return run, part and what is wrong with it; parts of no run have None."""
        rows: list[tuple[str | None, str, str]] = [
            (run_id, part, self.parts[part])
            for run_id, parts in self.runs.items()
            for part in parts
        ]
        of_runs = set(chain.from_iterable(self.runs.values()))
        return rows + [(None, part, why) for part, why in self.parts.items() if part not in of_runs]


@functools.cache
def lost_table() -> Table:
    """Return the relation that queries and models see: a row per run and part that is lost."""
    return Table(
        "lost",
        "Part files that are missing, damaged or without a manifest. Their runs are in no other"
        " table.",
        (
            columns()[PARTITION_KEY],
            Column("part", "VARCHAR", "Part file, relative to the lake."),
            Column("damage", "VARCHAR", "missing, damaged, or without a manifest."),
        ),
    )


def never(part: str) -> bool:
    """Return that a part that is known need not be verified again."""
    del part
    return False


def of_day(day: date) -> Callable[[str], bool]:
    """Return a function that says whether a part is of a day's share: one part in 31."""
    return lambda part: zlib.crc32(part.encode()) % SHARES == day.toordinal() % SHARES


def find_losses(
    files: PartFiles,
    snapshot: Snapshot,
    known: Mapping[str, Mark],
    again: Callable[[str], bool] = never,
    among: Collection[str] | None = None,
) -> Losses:
    """Return what is lost of a snapshot.

    Args:
        known: Parts that were verified before, with their marks of that time.
        again: Whether to verify a part that is known.
        among: Look only at these parts; the others count as there, and have no mark.
    """
    named = snapshot.all_parts if among is None else snapshot.all_parts.intersection(among)
    lost, marks = verify(files, named, known, again)
    return Losses(lost, _runs(snapshot, lost), marks)


def verify(
    files: PartFiles,
    parts: Collection[str],
    known: Mapping[str, Mark],
    again: Callable[[str], bool] = never,
) -> tuple[dict[str, str], dict[str, Mark]]:
    """Return which parts are missing or damaged, and the marks of the others; see `find_losses`."""
    # A store is not asked about a part that was verified before: that is a request per part.
    asked = set(parts) if files.local else {p for p in parts if p not in known or again(p)}
    marks = {part: known[part] for part in set(parts) - asked}
    lost: dict[str, str] = {}
    there = files.marks(asked)
    unread = []
    for part in sorted(asked):
        mark = there.get(part)
        if mark is None:
            lost[part] = MISSING
        elif known.get(part) != mark or again(part):
            unread.append(part)
        else:
            marks[part] = mark
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="verify") as pool:
        for part, intact in zip(
            unread, pool.map(functools.partial(_is_intact, files), unread), strict=True
        ):
            if intact:
                marks[part] = there[part]
            else:
                lost[part] = DAMAGED
    return lost, marks


def find_missing(files: PartFiles, snapshot: Snapshot) -> Losses:
    """Return the parts of a snapshot that do not exist; in a store none, to spare requests."""
    if not files.local:
        return Losses({}, {}, {})
    return find_losses(files, snapshot, files.marks(snapshot.all_parts))


def _is_intact(files: PartFiles, part: str) -> bool:
    try:
        return files.is_intact(part)
    except PermissionError:
        raise
    except OSError:  # of the disk, or the part was removed just now
        return False


def _runs(snapshot: Snapshot, lost: Collection[str]) -> dict[str, tuple[str, ...]]:
    if not lost:
        return {}
    found = {}
    for run_id, run in snapshot.runs.items():
        if harmed := tuple(sorted(part for part in run.all_parts if part in lost)):
            found[run_id] = harmed
    return found
