"""Take lines that readers read many at a time, in their order among the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tracelake.formats.readers import Alike, ManyReader, Reader
from tracelake.kernels.numbers import Longs

# Most kinds of lines that are searched for in a piece of text.
_SEARCHES = 8
# A search takes as long as reading so many lines alone.
_FEWEST = 250
# Most lines that are taken at once: where one is unlike those before, the next are looked at again.
_MOST = 512


@dataclass(frozen=True)
class Search:
    """Lines of a piece of text that are alike, with their columns.

    Attributes:
        stops: For each the place of the first that does not follow it, with all between.
    """

    alike: Alike
    columns: Mapping[str, npt.NDArray[Any]]
    stops: Longs


class AlikeLines:
    """The lines of a piece of text, of one or several files, that are like others."""

    def __init__(self, texts: pl.Series) -> None:
        """Begin before the first line.

        Args:
            texts: All lines that readers read.
        """
        self._texts = texts
        self._searches: dict[Hashable, Search] = {}
        self._places: dict[int, tuple[Search, int]] = {}  # by line

    def place(self, line: int, reader: ManyReader) -> tuple[Search, int] | None:
        """Return the search that found a line, and its place there; None to read it alone."""
        found = self._places.get(line)
        if found or len(self._texts) - line < _FEWEST or len(self._searches) >= _SEARCHES:
            return found
        keys = reader.keys
        if keys is None or keys in self._searches:
            return None
        alike = reader.read_many(keys, self._texts[line:])
        columns = {name: values.to_numpy() for name, values in alike.values.items()}
        at = np.array(alike.at, np.int64)
        ends = np.append(np.flatnonzero(np.diff(at) != 1) + 1, at.size)
        stops = ends[np.searchsorted(ends, np.arange(at.size), "right")]
        search = self._searches[keys] = Search(alike, columns, stops)
        self._places |= {line + at: (search, place) for place, at in enumerate(alike.at)}
        return self._places.get(line)


@dataclass(frozen=True)
class Taken:
    """Lines that were taken, their places in a search, and their other columns."""

    search: Search
    lines: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    own: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    @property
    def table(self) -> str:
        """The table that has their rows."""
        return self.search.alike.table


class ManyLines:
    """The lines of one file that its reader reads many at a time."""

    def __init__(self, reader: Reader, lines: AlikeLines, first: int, numbers: Longs) -> None:
        """Begin before the first line.

        Args:
            lines: Those that are like others, of this file or others.
            first: Number of the first line of the file among them.
            numbers: Of the lines in their file.
        """
        self._reader = reader if isinstance(reader, ManyReader) else None
        self._lines = lines
        self._first = first
        self._numbers = numbers
        self._taken: dict[int, Taken] = {}

    def take(self, line: int) -> int:
        """Take lines from this one on, if they can be read with others; return how many."""
        if self._reader is None:
            return 0
        found = self._lines.place(self._first + line, self._reader)
        if found is None:
            return 0
        search, place = found
        taken = self._taken.get(id(search))
        if taken is None:  # of a file the first is read alone: it may say more than its row
            self._taken[id(search)] = Taken(search)
            return 0
        most = min(self._numbers.size - line, _MOST)
        own = self._reader.take(search.alike, place, min(int(search.stops[place]), place + most))
        if own is None:
            return 0
        count = len(next(iter(own.values())))
        for name, values in own.items():
            taken.own[name] += values
        taken.lines.extend(self._numbers[line : line + count].tolist())
        taken.places.extend(range(place, place + count))
        return count

    @property
    def taken(self) -> list[Taken]:
        """Return the lines that were taken, by the search that found them."""
        return [taken for taken in self._taken.values() if taken.lines]
