"""Format values of the warehouse as cells of a table, by unit and type, and write tables as HTML.

A large page has 100,000 cells, too many for a template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import repeat
from typing import Any

from markupsafe import Markup, escape

from tracelake.base.figures import amount, count, label, number, unit_of
from tracelake.base.text import printable, some
from tracelake.output.html.plots import level_reach
from tracelake.schema.tables import Column

NOTHING = "\N{EN DASH}"
LIST_ITEMS = 12
_LONG = 40

# Units that stand in the heading of a column.
_MEASURES = frozenset({"ms", "GB/s", "%"})

# Width and height of a sparkline in a cell.
SPARK = (90, 20)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value.

    Attributes:
        title: Tooltip: the exact value, or the meaning of a name.
        sort: Number to sort by if the text is not a number.
        look: Class of the cell.
        link: Anchor on the page.
        bar: A share drawn below the text, in percent of the cell, and a line to compare with.
        parts: Pieces of a stacked bar: place in the legend, length in percent, tooltip.
        spark: Points of a sparkline: `x,y x,y ...` in a box of `SPARK`.
    """

    text: str
    title: str | None = None
    sort: int | None = None
    look: str = ""
    link: str | None = None
    bar: tuple[float, float | None] | None = None
    parts: Sequence[tuple[int, float, str]] = ()
    spark: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """Heading of a column; its meaning is once on the page, under the same label."""

    label: str
    unit: str | None = None
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of the page.

    Attributes:
        keys: For a table of runs, the run of each row.
        words: And what a filter finds it by besides its cells.
    """

    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    keys: Sequence[str] = ()
    words: Sequence[str] = ()


def is_number(column: Column) -> bool:
    """Return whether a column is aligned to the right."""
    return column.type in {"INTEGER", "BIGINT", "DOUBLE"}


@cache
def head(column: Column) -> Head:
    """Return the heading of a column, from its name and unit."""
    unit = _unit(column)
    return Head(label(column.name), unit if unit in _MEASURES else None, is_number(column))


def cell(column: Column, value: Any) -> Cell:
    """Return a printed value; its unit is in the heading."""
    return printer(column)(value)


@cache
def printer(column: Column) -> Callable[[Any], Cell]:
    """Return what prints the values of a column: a large page has 100,000."""
    show, missing = _printer(column), nothing(column)
    return lambda value: missing if value is None or value == "" else show(value)


def _printer(column: Column) -> Callable[[Any], Cell]:
    if column.name in {"reason", "stages_reason"}:
        return lambda value: Cell(str(value), look="reason")
    if column.name in {"verdict", "severity"}:
        return lambda value: Cell(str(value).replace("_", " "), look=f"badge {value}")
    if (unit := _unit(column)) in _MEASURES:
        return lambda value: Cell(number(value, unit), look="num")
    return _PRINTERS[_kind(column)]


def nothing(column: Column, title: str | None = None) -> Cell:
    """Return the cell of a missing value, with the reason if known."""
    return Cell(NOTHING, title, look="num none" if is_number(column) else "none")


def spark(values: Sequence[float], title: str) -> Cell:
    """Return values over time as a sparkline; one value gives none."""
    if len(values) < 2:
        return Cell("", look="spark")
    low, high = level_reach(values)
    width, height = SPARK
    points = " ".join(
        f"{1 + (width - 2) * n / (len(values) - 1):.1f},"
        f"{height - 2 - (height - 4) * ((value - low) / (high - low) if high > low else 0.5):.1f}"
        for n, value in enumerate(values)
    )
    return Cell("", title, look="spark", spark=points)


def _unit(column: Column) -> str:
    return unit_of(column.name, column.unit) or ""


def _kind(column: Column) -> str:
    if column.unit == "bytes":
        return "bytes"
    if column.type in {"INTEGER", "BIGINT"}:
        return "count" if column.unit else "number"
    return column.type.removesuffix("[]") if column.type in _PRINTERS else "other"


def _text(value: Any) -> Cell:
    text = (some(value, LIST_ITEMS) or NOTHING) if isinstance(value, list) else str(value)
    return Cell(text, look="long" if len(text) > _LONG else "")


_PRINTERS: Mapping[str, Callable[[Any], Cell]] = {
    "bytes": lambda value: Cell(amount(value), f"{value:,} bytes", sort=value, look="num"),
    "count": lambda value: Cell(count(value), look="num"),
    "number": lambda value: Cell(str(value), look="num"),
    "DOUBLE": lambda value: Cell(number(value, ""), look="num"),
    "BOOLEAN": lambda value: Cell("yes" if value else "no"),
    "TIMESTAMP": lambda value: Cell(value.isoformat(" ", "seconds"), look="date"),
    "other": _text,
}


def heads_html(grid: Grid) -> Markup:
    """Return the headings of a table."""
    return Markup("".join(map(_head, grid.heads)))


def rows_html(grid: Grid) -> Markup:
    """Return the rows of a table, a line each; see `cells_html`."""
    words = (f' data-words="{_safe(words)}"' for words in grid.words) if grid.words else repeat("")
    rows = zip(words, grid.rows, strict=False)
    return Markup("\n".join(f"<tr{words}>{cells_html(row)}</tr>" for words, row in rows))


def cells_html(cells: Iterable[Cell]) -> Markup:
    """Return the cells of a row; texts are escaped and have no control characters.

    Example:
        >>> cells_html([Cell("a < b", look="num")])
        Markup('<td class="num">a &lt; b</td>')
    """
    return Markup("".join(map(_cell, cells)))


@lru_cache(1 << 10)
def _head(head: Head) -> str:
    style = ' class="num"' if head.numeric else ""
    unit = f" <small>({_safe(head.unit)})</small>" if head.unit else ""
    return f'<th scope="col"{style}>{_safe(head.label)}{unit}</th>'


def _cell(cell: Cell) -> str:
    if cell.bar:
        width, at = cell.bar
        mark = "" if at is None else f'<b style="left:{at}%"></b>'
        bar = f'<span class="bar" aria-hidden="true"><i style="width:{width}%"></i>{mark}</span>'
        opened = f'<td class="{_safe(cell.look)} barred"'
    else:
        opened, bar = f'<td class="{_safe(cell.look)}"' if cell.look else "<td", ""
    if cell.title:
        opened += f' title="{_safe(cell.title)}"'
    if cell.sort is not None:
        opened += f' data-v="{cell.sort}"'
    return f"{opened}>{_inside(cell)}{bar}</td>"


def _inside(cell: Cell) -> str:
    if cell.parts:
        pieces = "".join(
            f'<i class="p{number}" style="width:{width}%" title="{_safe(title)}"></i>'
            for number, width, title in cell.parts
        )
        return f'<span class="stack" aria-hidden="true">{pieces}</span>'
    if cell.spark:
        width, height = SPARK
        return (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
            f' aria-label="{_safe(cell.title or "")}"><polyline points="{cell.spark}"/></svg>'
        )
    text = _safe(cell.text)
    return f'<a href="#{_safe(cell.link)}">{text}</a>' if cell.link else text


@lru_cache(1 << 16)  # figures and names of a page repeat
def _safe(text: str) -> str:
    return str(escape(printable(text)))
