"""Lay out a table in a width: cut names in the middle, then drop columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

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
        right: Aligned to the right, for numbers.
        spare: Left out if there is no space, those with the highest number first; 0 never.
        least: Minimum width when it is cut in the middle; None if it is never cut.
    """

    name: str
    right: bool = False
    spare: int = 0
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """The part of a table that fits.

    Attributes:
        places: Indices of the columns that are shown.
        widths: Their widths.
        dropped: Names of the others.
    """

    places: Sequence[int]
    widths: Sequence[int]
    dropped: Sequence[str]


def fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> Fitted:
    """Return which columns of a table are shown, and their widths.

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
            dropped = [c.name for place, c in enumerate(columns) if place not in shown]
            return Fitted(shown, widths, dropped)
        shown.remove(spare)


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
