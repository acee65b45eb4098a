"""Tell which files of one configuration come from the same start of a job: by stamps and ranks."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tracelake.formats import FileFacts


def stamp_of(text: str) -> datetime | None:
    """Return a date and time in the form of ISO 8601, with any letter between them; else None."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def date_of(seconds: int) -> datetime:
    """Return the date in UTC of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


_DATE_IN_PATH = re.compile(
    r"(?<!\d)(20\d\d)([-_.]?)(\d\d)\2(\d\d)"
    r"(?:[-_T ]?([01]\d|2[0-3])([-_:.]?)([0-5]\d)\6([0-5]\d))?(?!\d)"
    # Seconds since 1970 and nine more digits, as the PyTorch profiler names files.
    r"|(?<!\d)(1\d{9})\d{9}(?!\d)",
    re.ASCII,
)


def stamp_in(path: str) -> datetime | None:
    """Return the date nearest to the end of a path, in the file's name or a folder's."""
    for found in reversed(list(_DATE_IN_PATH.finditer(path))):
        year, _, month, day, hour, _, minute, second, since = found.groups(default="0")
        if since != "0":
            return date_of(int(since))
        with contextlib.suppress(ValueError):
            return datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))
    return None


# As `date`, `nvidia-smi` and ctime() write it, at the end of a line, and mpirun before its tag.
_DATE_IN_WORDS = re.compile(
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? "
    rb"(?:([A-Z][a-z]{2}) {1,2}(\d\d?)|(\d\d?) ([A-Z][a-z]{2})(?: (20\d\d))?)"
    rb" (\d\d:\d\d:\d\d)( [AP]M)?(?: [A-Z]{2,5}| [+-]\d\d(?:\d\d)?)?(?: (20\d\d))?(?:\s*$|\[\d)",
    re.M,
)


def stamp_in_words(head: bytes) -> datetime | None:
    r"""Return the first date that a command printed among some lines.

    Example:
        >>> stamp_in_words(b"Job 7 on gpu001\nFri Nov 27 22:28:34 CET 2026\n")
        datetime.datetime(2026, 11, 27, 22, 28, 34)
    """
    for found in _DATE_IN_WORDS.finditer(head):
        if b"#" in head[head.rfind(b"\n", 0, found.start()) + 1 : found.start()]:
            continue  # `uname -v` has the date of its build behind a number
        month, day, day_first, month_behind, year, clock, half, year_behind = (
            (part or b"").decode() for part in found.groups()
        )
        printed = f"{month or month_behind} {day or day_first} {year or year_behind} {clock}{half}"
        with contextlib.suppress(ValueError):
            return datetime.strptime(printed, f"%b %d %Y {'%I:%M:%S %p' if half else '%H:%M:%S'}")
    return None


class Unit(NamedTuple):
    """Files that are not split: one file, or the files of one start in one folder."""

    stamp: datetime | None
    ranks: frozenset[Hashable]


class _Block(NamedTuple):
    """Units of one stamp, by their place in the sequence."""

    stamp: datetime | None
    units: list[int]
    ranks: set[Hashable]


def starts(units: Sequence[Unit], gap_seconds: float) -> list[list[int]]:
    """Group units by start: places in the sequence, in order of stamp.

    Units of one stamp are one start, unless a rank repeats among them: then the k-th units that
    have it are start k. A gap of more than `gap_seconds` between stamps ends a start. Where a rank
    repeats between two gaps, ranks wrote different stamps: the units are cut into as few starts
    without a repeated rank as there can be, at the largest gaps between stamps.
    """
    order = sorted(range(len(units)), key=lambda i: (units[i].stamp or datetime.min, i))
    found: list[list[int]] = []
    layers: list[list[_Block]] = []
    before: datetime | None = None
    for stamp, alike in itertools.groupby(order, key=lambda i: units[i].stamp):
        if layers and (before is None or _seconds(before, stamp) > gap_seconds):
            found.extend(_cut(layers))
            layers = []
        for k, block in enumerate(_blocks(stamp, alike, units)):
            if k == len(layers):
                layers.append([])
            layers[k].append(block)
        before = stamp
    found.extend(_cut(layers))
    return found


def runs_of(
    files: Sequence[FileFacts],
    gap_seconds: float,
    job_of: Callable[[FileFacts], Hashable],
    rank_of: Callable[[FileFacts], Hashable] = attrgetter("rank"),
) -> list[list[FileFacts]]:
    """Group files into runs, in order of their first file: the starts of each job.

    Args:
        job_of: Tells jobs apart; files that `--run-pattern` gives one run are that run.
        rank_of: Of two files of one rank the second begins another start.
    """
    jobs: dict[Hashable, list[FileFacts]] = defaultdict(list)
    for file in sorted(files, key=lambda f: f.path):
        jobs[job_of(file) if file.run is None else (file.run,)].append(file)
    runs = []
    for members in jobs.values():
        if members[0].run is not None or len(members) == 1:
            runs.append(members)
            continue
        units = [Unit(file.stamp, frozenset({rank_of(file)})) for file in members]
        runs += [[members[i] for i in sorted(start)] for start in starts(units, gap_seconds)]
    return sorted(runs, key=lambda run: run[0].path)


def _seconds(earlier: datetime | None, later: datetime | None) -> float:
    if earlier is None or later is None:
        return 0.0
    return (later - earlier).total_seconds()


def _blocks(stamp: datetime | None, places: Iterator[int], units: Sequence[Unit]) -> list[_Block]:
    """Return the units of a stamp without repeated ranks; the k-th unit of a rank in block k."""
    blocks: list[_Block] = []
    taken: dict[Hashable, int] = defaultdict(int)
    for i in places:
        k = max(taken[rank] for rank in units[i].ranks)
        for rank in units[i].ranks:
            taken[rank] = k + 1
        if k == len(blocks):
            blocks.append(_Block(stamp, [], set()))
        blocks[k].units.append(i)
        blocks[k].ranks.update(units[i].ranks)
    return blocks


def _cut(layers: Sequence[Sequence[_Block]]) -> Iterator[list[int]]:
    for blocks in layers:
        for start, stop in itertools.pairwise(_cuts(blocks)):
            yield [i for block in blocks[start:stop] for i in block.units]


def _cuts(blocks: Sequence[_Block]) -> list[int]:
    """Return where blocks are cut, from 0 to their number: fewest parts, then largest gaps."""
    # For the blocks before each place: parts, minus the seconds of the gaps, and the cut before.
    best: list[tuple[int, float, int]] = [(0, 0.0, 0)]
    for stop in range(1, len(blocks) + 1):
        found: tuple[int, float, int] | None = None
        ranks: set[Hashable] = set()
        for start in range(stop - 1, -1, -1):
            if not ranks.isdisjoint(blocks[start].ranks):
                break
            ranks |= blocks[start].ranks
            parts, gaps, _ = best[start]
            gap = _seconds(blocks[start - 1].stamp, blocks[start].stamp) if start else 0.0
            one = parts + 1, gaps - gap, start
            if found is None or one[:2] < found[:2]:
                found = one
        assert found is not None
        best.append(found)
    cuts = [len(blocks)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][2])
    return cuts[::-1]
