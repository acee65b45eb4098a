"""Lay out a table in a width: cut names in the middle, then drop columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from tracelake.base.figures import figure, unit_of
from tracelake.base.text import cut_middle

GAP = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value.

    Attributes:
        style: A style of rich; empty for plain text.
    """

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        of: The value that it shows: a name of the row, which also says its unit, or what gives the
            text of a row; `name` by default.
        style: Style of its cells, or what gives that of a row.
        right: Aligned to the right, for numbers; those with a unit always are.
        spare: Left out if there is no space, those with the highest number first; 0 never.
        least: Minimum width when it is cut in the middle; None if it is never cut.
    """

    name: str
    of: str | Callable[[Any], str] = ""
    style: str | Callable[[Any], str] = ""
    right: bool = False
    spare: int = 0
    least: int | None = None

    @property
    def aligned_right(self) -> bool:
        """Return whether it holds numbers."""
        return self.right or (isinstance(self.of, str) and unit_of(self.of) is not None)

    def cell(self, row: Mapping[str, Any]) -> Cell:
        """Return its cell of a row."""
        style = self.style if isinstance(self.style, str) else self.style(row)
        if not isinstance(self.of, str):
            return Cell(self.of(row), style)
        name = self.of or self.name
        value = row[name]
        return Cell(plain(value) if unit_of(name) is None else figure(name, value), style)


def fit(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None
) -> dict[int, int]:
    """Return the widths of the columns of a table that are shown, by their index.

    Args:
        width: Width of a line; None without a limit.
    """
    natural = [
        max([cell_len(column.name), *(cell_len(row[place].text) for row in rows)])
        for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while True:
        widths = _cut(columns, natural, shown, width)
        spare = max(shown, key=lambda place: (columns[place].spare, place))
        if width is None or _line(widths) <= width or not columns[spare].spare:
            return dict(zip(shown, widths, strict=True))
        shown.remove(spare)


def plain(value: object) -> str:
    """Return a value as text; a missing one as none."""
    return "" if value is None else str(value)


def laid_out(cell: Cell, width: int, *, right: bool) -> str:
    """Return a cell's text, padded and aligned."""
    text = cut_middle(cell.text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _line(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(
    columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int | None
) -> list[int]:
    """Return widths of the shown columns, with those that can be cut as narrow as necessary."""
    widths = [natural[place] for place in shown]
    if width is None:
        return widths
    for number, place in enumerate(shown):
        least = columns[place].least
        over = _line(widths) - width
        if least is not None and over > 0:
            widths[number] = max(min(least, widths[number]), widths[number] - over)
    return widths
