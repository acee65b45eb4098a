"""Read the file of `--hosts`: the host of each rank, line by line.

    rank,host,device,run
    0,node3,0,job7/*
    1,node3,1,job7/*

`device` and `run` are optional, and blank lines and lines that begin with `#` are ignored. `run`
is a glob on the input's path below the root, where `*` also matches `/`; without it a
line applies to every input. A file without commas has columns separated by blanks, and needs no
header: `rank host` or `rank host device`.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracelake.base.errors import UsageError
from tracelake.base.files import read_text

# Room for a million ranks.
_LARGEST = 100_000_000
_NEEDED = ("rank", "host")
_COLUMNS = (*_NEEDED, "device", "run")
_WILDCARD = re.compile(r"[*?[]")
_FORM = "the columns are rank,host[,device][,run]"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the file.

    Attributes:
        run: Glob on the paths it applies to; None for all.
        line: Its number, from 1.
    """

    rank: int
    host: str
    device: str | None
    run: str | None
    line: int


@dataclass(frozen=True)
class Hosts:
    """Hosts of ranks, from one file.

    Attributes:
        path: Path of the file.
        places: Its lines by rank and glob.
    """

    path: Path
    places: Mapping[tuple[int, str | None], Place]

    def place(self, path: str, rank: int) -> Place | None:
        """Return the line for a rank of the input with that path.

        Raises:
            UsageError: The file has two lines for it.
        """
        lines = [self.places[rank, run] for run in self.runs_of(path) if (rank, run) in self.places]
        if len(lines) > 1:
            first, second, *_ = sorted(lines, key=lambda place: place.line)
            raise _twice(self.path, first, second, f"rank {rank} of {path}")
        return lines[0] if lines else None

    def runs_of(self, path: str) -> list[str | None]:
        """Return globs that match this path; None among them if some lines have no glob."""
        plain: list[str | None] = [None] if None in self.runs else []
        starts = (by_start.get(path[:size], {}) for size, by_start in self._globs.items())
        return plain + [run for globs in starts for run, glob in globs.items() if glob.match(path)]

    @functools.cached_property
    def runs(self) -> Mapping[str | None, int]:
        """Every glob, with the first line that has it."""
        return {place.run: place.line for place in reversed(list(self.places.values()))}

    @functools.cached_property
    def _globs(self) -> Mapping[int, Mapping[str, Mapping[str, re.Pattern[str]]]]:
        """Globs by length of the text before their first wildcard, and by that text."""
        globs: dict[int, dict[str, dict[str, re.Pattern[str]]]] = {}
        for run in filter(None, self.runs):
            start = _WILDCARD.split(run, maxsplit=1)[0]
            alike = globs.setdefault(len(start), {}).setdefault(start, {})
            alike[run] = re.compile(fnmatch.translate(run))
        return globs


def read_hosts(path: Path) -> Hosts:
    """Read a file of `--hosts`.

    Raises:
        UsageError: It cannot be read, or a line is not of its form.
    """
    text = read_text(path, "--hosts", _LARGEST, "utf-8-sig")
    places: dict[tuple[int, str | None], Place] = {}
    for place in _places(path, text):
        first = places.setdefault((place.rank, place.run), place)
        if first is not place:
            raise _twice(path, first, place, f"rank {place.rank}")
    if not places:
        raise UsageError(
            "the file has no line with a rank", path=path, hint=f"{_FORM}, a line per rank"
        )
    return Hosts(path, places)


def _places(path: Path, text: str) -> Iterator[Place]:
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        return
    spaced = "," not in lines[0][1]
    rows = [(number, _cells(path, number, line, spaced=spaced)) for number, line in lines]
    header: Sequence[str] = _COLUMNS[:3]
    if not spaced or rows[0][1][0] == "rank":
        header = _header(path, *rows.pop(0))
    for number, cells in rows:
        yield _place(path, number, header, cells)


def _cells(path: Path, number: int, line: str, *, spaced: bool) -> list[str]:
    if spaced:
        return line.split()
    try:
        (cells,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise _wrong(path, number, f"not a line of CSV: {error}", _FORM) from error
    return [cell.strip() for cell in cells]


def _header(path: Path, number: int, names: Sequence[str]) -> Sequence[str]:
    known = set(names) <= set(_COLUMNS) and set(_NEEDED) <= set(names)
    if not known or len(set(names)) < len(names):
        hint = f"begin with a line that names the columns: {_FORM}"
        raise _wrong(path, number, f"not a header of --hosts: {','.join(names)}", hint)
    return names


def _place(path: Path, number: int, header: Sequence[str], cells: Sequence[str]) -> Place:
    if len(cells) > len(header):
        hint = "quote a value that holds a comma, or name the column in the header"
        what = f"{len(cells)} values for the columns {','.join(header)}"
        raise _wrong(path, number, what, hint)
    row = dict(zip(header, cells, strict=False))
    rank, host = row.get("rank", ""), row.get("host", "")
    if not (rank.isascii() and rank.isdigit() and len(rank) < 10):
        raise _wrong(path, number, f"{rank!r} is not a rank", f"give a whole number; {_FORM}")
    if not host:
        hint = "add the host, or delete the line"
        raise _wrong(path, number, f"rank {rank} has no host", hint)
    return Place(int(rank), host, row.get("device") or None, row.get("run") or None, number)


def _twice(path: Path, first: Place, second: Place, which: str) -> UsageError:
    hint = "delete one of the lines, or distinguish them with a column `run`"
    return _wrong(path, second.line, f"{which} already has a host on line {first.line}", hint)


def _wrong(path: Path, line: int, what: str, hint: str) -> UsageError:
    return UsageError(what, path=path, line=line, hint=hint)
