"""Values of the warehouse as cells of a table: one way of printing per unit and type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.schema import Column

NOTHING = "\N{EN DASH}"
LIST_ITEMS = 12
_LONG = 40
_BYTES = ("kB", "MB", "GB", "TB")

# Ratios to something else than a whole: they exceed 1 and are no percentages.
_FACTORS = frozenset({"imbalance_ratio", "bubble_over_ideal_ratio", "theory_over_ideal_ratio"})
_UNIT_SUFFIXES = ("_ratio", "_gbps", "_ms", "_bytes")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """A share drawn in a cell.

    Attributes:
        width: Length, in percent of the cell.
        mark: Where a line stands to compare with, in percent.
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
    """A value as printed.

    Attributes:
        title: Tooltip: the exact value, or what a name means.
        sort: Number to sort by where the text is not one.
        look: Class of the cell.
        link: Anchor on the page.
    """

    text: str
    title: str | None = None
    sort: int | None = None
    look: str = ""
    link: str | None = None
    bar: Bar | None = None
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """Heading of a column; what it means stands once on the page, under the same label."""

    label: str
    unit: str | None = None
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of the page."""

    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]


def is_number(column: Column) -> bool:
    """Stands on the right."""
    return column.type in {"INTEGER", "BIGINT", "DOUBLE"}


def is_share(column: Column) -> bool:
    """Printed in percent."""
    return column.name.endswith("_ratio") and column.name not in _FACTORS


def head(column: Column) -> Head:
    """Heading of a column, from its name and unit."""
    name = column.name
    for suffix in _UNIT_SUFFIXES:
        name = name.removesuffix(suffix)
    unit = "%" if is_share(column) else column.unit if column.unit in {"ms", "GB/s"} else None
    return Head(name.replace("_", " "), unit, is_number(column))


def cell(column: Column, value: Any) -> Cell:
    """A value as printed: two decimals for times and speeds, three for other numbers."""
    if value is None or value == "":
        return nothing(column)
    if column.name in {"reason", "stages_reason"}:
        return Cell(str(value), look="reason")
    if column.name in {"verdict", "severity"}:
        return Cell(str(value).replace("_", " "), look=f"badge {value}")
    return _PRINTERS[_kind(column)](value)


def nothing(column: Column, title: str | None = None) -> Cell:
    """A value that is not there, and why where that is known."""
    return Cell(NOTHING, title, look="num none" if is_number(column) else "none")


def amount(size: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    if abs(size) < 1000:
        return f"{size} B"
    power = 1
    while power < len(_BYTES) and abs(size) >= 999_995 * 1000 ** (power - 1):
        power += 1
    return f"{size / 1000**power:.2f} {_BYTES[power - 1]}"


def some(values: Sequence[object]) -> str:
    """The first values of a list, and how many more there are."""
    more = len(values) - LIST_ITEMS
    shown = ", ".join(map(str, values[:LIST_ITEMS]))
    return f"{shown} and {more:,} more" if more > 0 else shown


def _kind(column: Column) -> str:
    if is_share(column):
        return "share"
    if column.unit in {"ms", "GB/s", "bytes"}:
        return column.unit
    if column.type in {"INTEGER", "BIGINT"}:
        return "count" if column.unit else "number"
    return column.type.removesuffix("[]") if column.type in _PRINTERS else "other"


def _decimals(value: float, digits: int) -> str:
    """A number of a fixed count of decimals; what would round to zero says that it is not."""
    smallest = 10.0**-digits
    if 0 < abs(value) < smallest / 2:
        return f"{'<' if value > 0 else '>-'}{smallest:.{digits}f}"
    return f"{value:,.{digits}f}"


def _measure(value: float) -> Cell:
    return Cell(_decimals(value, 2), look="num")


def _share(value: float) -> Cell:
    return Cell(_decimals(100 * value, 1), look="num")


def _text(value: Any) -> Cell:
    text = (some(value) or NOTHING) if isinstance(value, list) else str(value)
    return Cell(text, look="long" if len(text) > _LONG else "")


_PRINTERS: Mapping[str, Callable[[Any], Cell]] = {
    "ms": _measure,
    "GB/s": _measure,
    "share": _share,
    "bytes": lambda value: Cell(amount(value), f"{value:,} bytes", sort=value, look="num"),
    "count": lambda value: Cell(f"{value:,}", look="num"),
    "number": lambda value: Cell(str(value), look="num"),
    "DOUBLE": lambda value: Cell(_decimals(value, 3), look="num"),
    "BOOLEAN": lambda value: Cell("yes" if value else "no"),
    "TIMESTAMP": lambda value: Cell(value.isoformat(" ", "seconds"), look="date"),
    "other": _text,
}
