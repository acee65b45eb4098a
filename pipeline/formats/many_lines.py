"""Take lines that a reader reads many at a time, in their order among the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracelake.formats.readers import Alike, ManyReader, Reader

# Most often that the lines of a piece of text are searched for those like the latest one.
_SEARCHES = 8
# A search takes as long as reading so many lines alone.
_FEWEST = 250


@dataclass(frozen=True)
class _Taken:
    """Lines that were taken, their places among those that are alike, and their other columns."""

    alike: Alike
    lines: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    own: list[Mapping[str, Any]] = field(default_factory=list)


class ManyLines:
    """The lines of a piece of text that a reader reads many at a time."""

    def __init__(self, reader: Reader, texts: pl.Series) -> None:
        """Begin before the first line.

        Args:
            texts: All lines that the reader reads.
        """
        self._reader = reader if isinstance(reader, ManyReader) else None
        self._texts = texts
        self._places: dict[int, int] = {}  # of the lines that the latest search found
        self._last = -1  # of these
        self._searches: list[_Taken] = []

    def takes(self, line: int) -> bool:
        """Take a line, if it can be read with others; lines come in order."""
        if self._reader is None:
            return False
        many = len(self._texts) - line >= _FEWEST
        if many and line > self._last and len(self._searches) < _SEARCHES:
            self._search(self._reader, line)
        place = self._places.get(line)
        if place is None:
            return False
        taken = self._searches[-1]
        own = self._reader.take(taken.alike, place)
        if own is None:
            return False
        taken.lines.append(line)
        taken.places.append(place)
        taken.own.append(own)
        return True

    def taken(self) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
        """Yield lines that were taken, with their table and columns."""
        for one in self._searches:
            if one.lines:
                columns: dict[str, Any] = {
                    name: values.gather(one.places).to_numpy()
                    for name, values in one.alike.values.items()
                }
                columns |= {name: [own[name] for own in one.own] for name in one.own[0]}
                yield one.alike.table, one.lines, columns

    def _search(self, reader: ManyReader, line: int) -> None:
        """Search the lines from this one on for those like the latest that was read alone."""
        found = reader.read_many(self._texts, line)
        if found is not None:
            self._searches.append(_Taken(found))
            self._places = {line + at: place for place, at in enumerate(found.at)}
            self._last = max(self._places, default=-1)
