"""List runs: which, in which order, and how many columns fit the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tracelake.base.errors import UsageError
from tracelake.models import relation_columns
from tracelake.models.base import literal, quoted
from tracelake.output.terminal import words
from tracelake.output.terminal.attention import RUNS_SQL
from tracelake.output.terminal.grid import Cell, Column
from tracelake.output.terminal.page import BAD, WARN, Page
from tracelake.warehouse.headline import HEADLINE
from tracelake.warehouse.values import rows_of

ATTENTION = "attention"
# If not all fit, the last ones here are left out first.
_SPARE = (
    "run_date",
    "bubble_ratio",
    "rejects",
    "suspects",
    "format",
    "busbw_gbps",
    "steps",
    "comm_ratio",
    "coverage_ratio",
    "slowest_stage",
    "gpu_hours_lost",
)
_RUN_ID_LEAST = 24
_DEAR = {"stragglers": BAD, "rejects": WARN, ATTENTION: BAD}


@dataclass(frozen=True, slots=True)
class Choice:
    """Filter and order of a list of runs.

    Attributes:
        after: Only runs with this date or later.
        trace_format: Only runs of this format.
        attention: Only runs with findings, and which.
        sort: Column of `HEADLINE`: numbers and dates from the largest, text from A; the order is
            that of the dates by default.
        reverse: Reverse the order.
        limit: Maximum number of runs.
    """

    after: datetime | None = None
    trace_format: str | None = None
    attention: bool = False
    sort: str | None = None
    reverse: bool = False
    limit: int | None = None


def runs_sql(choice: Choice) -> str:
    """Return the query that lists runs with their main figures.

    Raises:
        UsageError: There is no such column to sort by.
    """
    columns = ", ".join(f"s.{name}" for name in HEADLINE[1:])
    wanted = f"JOIN ({RUNS_SQL}) AS a USING (run_id)" if choice.attention else ""
    seen = f"array_to_string(a.{ATTENTION}, ', ') AS {ATTENTION}, " if choice.attention else ""
    conditions = [
        f"s.run_date >= TIMESTAMP {literal(str(choice.after))}" if choice.after else None,
        f"s.format = {literal(choice.trace_format)}" if choice.trace_format else None,
    ]
    where = " AND ".join(filter(None, conditions)) or "true"
    limit = "" if choice.limit is None else f"LIMIT {choice.limit}"
    return (
        f"SELECT s.run_id, {seen}{columns} FROM run_summary AS s {wanted} WHERE {where}"
        f" ORDER BY {_order(choice)} {limit}"
    )


def _order(choice: Choice) -> str:
    name = choice.sort or "run_date"
    if name not in HEADLINE:
        raise UsageError(f"runs have no column {name!r}", hint=f"use one of {', '.join(HEADLINE)}")
    (column,) = (c for c in relation_columns("run_summary") if c.name == name)
    falls = (column.type != "VARCHAR") != choice.reverse
    way = "DESC" if falls else "ASC"
    return f"s.{quoted(name)} {way} NULLS LAST, s.run_date DESC NULLS LAST, s.run_id"


def draw_runs(reader: pa.RecordBatchReader, page: Page) -> None:
    """Print the answer to `runs_sql` as a table that fits the terminal."""
    names = reader.schema.names
    rows = [
        [_cell(name, value) for name, value in zip(names, row, strict=True)]
        for batch in reader
        for row in rows_of(batch)
    ]
    if not rows:
        page.prose("no runs", first="")
    page.table([_column(name) for name in names], rows, indent=0)
    page.end()


def _column(name: str) -> Column:
    spare = _SPARE.index(name) + 1 if name in _SPARE else 0
    if name == "run_id":
        return Column(name, least=_RUN_ID_LEAST)
    text = name in {"format", "run_date", ATTENTION}
    return Column(words.label(name), right=not text, spare=spare)


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, int | float) and name != "slowest_stage":
        style = _DEAR.get(name, "") if value else ""
        if name == "coverage_ratio" and value < 1:
            style = WARN
        return Cell(words.figure(name, value), style)
    return Cell(words.text(value), _DEAR.get(name, ""))
