"""A table that fits a width: names are cut in the middle, then the least columns are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from pipeline.text import cut_middle

GAP = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as shown.

    Attributes:
        style: As rich names it; nothing for plain text.
    """

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        right: Stands on the right: numbers.
        spare: Left out where there is no room, those with the highest number first; 0 never.
        least: Cells that it keeps when it is cut in the middle; None for one that is never cut.
    """

    name: str
    right: bool = False
    spare: int = 0
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """The part of a table that fits.

    Attributes:
        places: Columns that are shown, by place.
        widths: Of these.
        dropped: Names of the others.
    """

    places: Sequence[int]
    widths: Sequence[int]
    dropped: Sequence[str]


def fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> Fitted:
    """What of a table is shown, and how wide.

    Args:
        width: Cells of a line; None for as many as it takes.
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
    """A cell's text in its place."""
    text = cut_middle(cell.text, width)
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _line(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(
    columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int | None
) -> list[int]:
    """Widths of the columns that are shown, those that may be cut as narrow as they must be."""
    widths = [natural[place] for place in shown]
    if width is None:
        return widths
    for number, place in enumerate(shown):
        least = columns[place].least
        over = _line(widths) - width
        if least is not None and over > 0:
            widths[number] = max(min(least, widths[number]), widths[number] - over)
    return widths
