"""List runs: which, in which order, and how many columns fit the terminal."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from tracelake.base import figures
from tracelake.base.errors import UsageError
from tracelake.models.base import literal, quoted
from tracelake.models.describe import relation_columns
from tracelake.output.terminal.page import BAD, DIM, WARN, Column, Page, plain
from tracelake.warehouse.headline import HEADLINE, may_run
from tracelake.warehouse.values import named_rows

# Columns of `run_list` that the query puts before those of HEADLINE.
_NAMES = ("label", "hash", "size", "stepless", "copy_of", "running_until")
# Columns of the query that have another heading than their name.
_HEADS = {
    "run": "hash",
    "run date": "run_date",
    "step": "step_p50_ms",
    "change": "step_p50_ms_change_ratio",
    "problems": "attention",
    "copy of": "copy_of",
}
# Figures: if not all columns fit, those that have the highest number are left out first.
_SPARE = {
    "bubble_ratio": 3,
    "rejects": 4,
    "suspects": 5,
    "stragglers": 6,
    "format": 7,
    "busbw_gbps": 8,
    "steps": 9,
    "comm_ratio": 10,
    "coverage_ratio": 11,
    "slowest_stage": 12,
    "gpu_hours_lost": 13,
}


def runs_sql(
    *,
    after: datetime | None = None,
    trace_format: str | None = None,
    attention: bool = False,
    sort: str | None = None,
    reverse: bool = False,
    limit: int | None = None,
) -> str:
    """Return the query that lists runs with their main figures.

    Args:
        after: Only runs with this date or later.
        trace_format: Only runs of this format.
        attention: Only runs with findings or tests of slow links, and which.
        sort: Column of the query, or the heading of one: numbers and dates from the largest, text
            from A; by default the runs with the most severe problems come first.

    Raises:
        UsageError: There is no such column to sort by.
    """
    columns = ", ".join(f"s.{name}" for name in HEADLINE[1:])
    conditions = [
        f"s.run_date >= TIMESTAMP {literal(str(after))}" if after else None,
        f"s.format = {literal(trace_format)}" if trace_format else None,
        "len(l.problems) > 0" if attention else None,
    ]
    where = " AND ".join(filter(None, conditions)) or "true"
    first = "" if limit is None else f"LIMIT {limit}"
    return (
        f"SELECT l.run_id, {', '.join(f'l.{name}' for name in _NAMES)},"
        f" nullif(array_to_string(l.problems, ', '), '') AS attention, {columns},"
        " l.step_p50_ms_change_ratio"
        f" FROM run_list AS l JOIN run_summary AS s USING (run_id) WHERE {where}"
        f" ORDER BY {_order(sort, reverse=reverse)} {first}"
    )


def _order(name: str | None, *, reverse: bool) -> str:
    """Return the order: by severity, where no column is given."""
    if name is None:
        return f"l.urgency {'DESC' if reverse else 'ASC'}"
    heads = {figures.label(column): column for column in HEADLINE} | _HEADS
    column = heads.get(name.replace("_", " "), name)
    known = (*HEADLINE, *_NAMES, "attention", "step_p50_ms_change_ratio")
    if column not in known:
        names = dict.fromkeys((*known, *heads))
        raise UsageError(f"runs have no column {name!r}", hint=f"use one of {', '.join(names)}")
    types = {c.name: c.type for of in ("run_list", "run_summary") for c in relation_columns(of)}
    falls = (types.get(column, "VARCHAR") != "VARCHAR") != reverse
    way = "DESC" if falls else "ASC"
    return f"{quoted(column)} {way} NULLS LAST, s.run_date DESC NULLS LAST, s.run_id"


def draw_runs(reader: pa.RecordBatchReader, page: Page) -> None:
    """Print the answer to `runs_sql` as a table that fits the terminal.

    Runs without steps have a table of their own.

    Columns without a value in any row are left out.
    """
    rows = [row for batch in reader for row in named_rows(batch)]
    if not rows:
        page.prose("no runs", first="")
    runs = [row for row in rows if not row["stepless"]]
    stepless = [row for row in rows if row["stepless"]]
    page.table(_COLUMNS, runs, indent=0)
    if stepless:
        if runs:
            page.heading("Without steps", "plans of work, tests of links, and logs without steps")
        page.table(_COLUMNS, stepless, indent=0)


def _figure(name: str) -> Column:
    """Return the column of a figure; a number that is no amount, like that of a stage, is plain."""
    plainly = name in {"format", "slowest_stage"}
    return Column(
        figures.label(name),
        lambda row: plain(row[name]) if plainly else figures.figure(name, row[name]),
        lambda row: _style(name, row[name]),
        right=name != "format",
        spare=_SPARE.get(name, 0),
    )


def _style(name: str, value: float | None) -> str:
    if name == "coverage_ratio":
        return WARN if value is not None and value < 1 else ""
    return {"stragglers": BAD, "rejects": WARN}.get(name, "") if value else ""


_COLUMNS = (
    Column("label", least=12),
    Column("run", "hash"),
    Column("run date", lambda row: plain(row["run_date"])[: len("2025-01-31 06:00")], spare=1),
    Column("size", spare=2),
    Column("step", "step_p50_ms"),
    Column("change", lambda row: figures.signed(row["step_p50_ms_change_ratio"]), right=True),
    Column(
        "problems",
        lambda row: plain(row["attention"] or may_run(row["running_until"])).replace("_", " "),
        lambda row: BAD if row["attention"] else DIM,
        least=20,
    ),
    *(_figure(name) for name in HEADLINE if name not in {"run_id", "run_date", "step_p50_ms"}),
    Column("copy of", "copy_of", spare=14),
)
