"""Format values of the warehouse as cells of a table, by unit and type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tracelake.base.figures import amount, count, label, number, unit_of
from tracelake.base.text import some
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
class Bar:
    """A share drawn in a cell.

    Attributes:
        width: Length, in percent of the cell.
        mark: Position of a line to compare with, in percent.
    """

    width: float
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stacked bar: its place in the legend, its length in percent, its tooltip."""

    number: int
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value.

    Attributes:
        title: Tooltip: the exact value, or the meaning of a name.
        sort: Number to sort by if the text is not a number.
        look: Class of the cell.
        link: Anchor on the page.
        spark: Points of a sparkline: `x,y x,y ...` in a box of `SPARK`.
    """

    text: str
    title: str | None = None
    sort: int | None = None
    look: str = ""
    link: str | None = None
    bar: Bar | None = None
    parts: Sequence[Part] = ()
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
