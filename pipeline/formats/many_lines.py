"""Take lines that readers read many at a time, in their order among the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import polars as pl

from tracelake.formats.readers import Alike, ManyReader, Reader

# Most kinds of lines that are searched for in a piece of text.
_SEARCHES = 8
# A search takes as long as reading so many lines alone.
_FEWEST = 250


@dataclass(frozen=True)
class _Search:
    """Lines of a piece of text that are alike, with their columns."""

    alike: Alike
    columns: Mapping[str, npt.NDArray[Any]]


class AlikeLines:
    """The lines of a piece of text, of one or several files, that are like others."""

    def __init__(self, texts: pl.Series) -> None:
        """Begin before the first line.

        Args:
            texts: All lines that readers read.
        """
        self._texts = texts
        self._searches: dict[Hashable, _Search] = {}
        self._places: dict[int, tuple[_Search, int]] = {}  # by line

    def place(self, line: int, reader: ManyReader) -> tuple[_Search, int] | None:
        """Return the search that found a line, and its place there; None to read it alone."""
        found = self._places.get(line)
        if found or len(self._texts) - line < _FEWEST or len(self._searches) >= _SEARCHES:
            return found
        keys = reader.keys
        if keys is None or keys in self._searches:
            return None
        alike = reader.read_many(keys, self._texts[line:])
        columns = {name: values.to_numpy() for name, values in alike.values.items()}
        search = self._searches[keys] = _Search(alike, columns)
        self._places |= {line + at: (search, place) for place, at in enumerate(alike.at)}
        return self._places.get(line)


@dataclass(frozen=True)
class _Taken:
    """Lines that were taken, their places in a search, and their other columns."""

    search: _Search
    lines: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    own: list[Mapping[str, Any]] = field(default_factory=list)


class ManyLines:
    """The lines of one file that its reader reads many at a time."""

    def __init__(self, reader: Reader, lines: AlikeLines, first: int) -> None:
        """Begin before the first line.

        Args:
            lines: Those that are like others, of this file or others.
            first: Number of the first line of the file among them.
        """
        self._reader = reader if isinstance(reader, ManyReader) else None
        self._lines = lines
        self._first = first
        self._taken: dict[int, _Taken] = {}

    def takes(self, line: int) -> bool:
        """Take a line, if it can be read with others; lines come in order."""
        if self._reader is None:
            return False
        found = self._lines.place(self._first + line, self._reader)
        if found is None:
            return False
        search, place = found
        taken = self._taken.get(id(search))
        if taken is None:  # of a file the first is read alone: it may say more than its row
            self._taken[id(search)] = _Taken(search)
            return False
        own = self._reader.take(search.alike, place)
        if own is None:
            return False
        taken.lines.append(line)
        taken.places.append(place)
        taken.own.append(own)
        return True

    def taken(self) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
        """Yield lines that were taken, with their table and columns."""
        for one in self._taken.values():
            if not one.lines:
                continue
            columns: dict[str, Any] = {
                name: values[one.places] for name, values in one.search.columns.items()
            }
            columns |= {name: [own[name] for own in one.own] for name in one.own[0]}
            yield one.search.alike.table, one.lines, columns
