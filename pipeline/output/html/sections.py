"""Read the relations of the page for all its runs at once, and lay out each run's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import duckdb

from tracelake.base.figures import count, label, percent, unit_of
from tracelake.base.text import counted
from tracelake.models.base import literal, quoted
from tracelake.models.catalog import catalog
from tracelake.models.describe import relation_columns
from tracelake.output.html.cells import NOTHING, Cell, Grid, Head, Row, head, printer
from tracelake.output.html.reading import PAGE_RUNS, grouped, page_rows
from tracelake.output.html.shapes import SHAPES, Shape
from tracelake.schema.tables import Column, reasons, tables

# Shown for all runs at once, or in a special form.
_ELSEWHERE = frozenset({"run_summary", "coverage"})
# Total rows of a kind of section: with many runs, each shows fewer.
_ROWS_OF_PAGE = 1200
_ROWS_AT_LEAST = 8
# Columns of a table that takes half of the page's width.
_NARROW = 6
_STACK_PLACE = 2
_STACK_HEAD = Head("parts")
_ALL_STAGES = Cell("all", look="num")


@dataclass(frozen=True, slots=True)
class Source:
    """The way a relation is computed.

    Attributes:
        file: The model's file; NULL for a base table.
        sql: Its text without the header.
        tables: Base tables it is computed from, directly or not; a base table itself.
    """

    file: str | None
    sql: str | None
    tables: tuple[str, ...]


def source_of(relation: str) -> Source:
    """Return the source of a base table or model.

    Raises:
        KeyError: There is no such relation.
    """
    if relation in tables():
        return Source(None, None, (relation,))
    known = catalog()
    model = known.models[relation]
    upstream = known.upstream([relation])
    read = {name for each in upstream for name in known.inputs[each.name]}
    lines = model.sql.splitlines()
    body = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    return Source(
        PurePosixPath("sql", model.path.parent.name, model.path.name).as_posix(),
        "\n".join(lines[body:]),
        tuple(name for name in tables() if name in read and name not in {"runs", "skipped"}),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A relation's rows of one run.

    Attributes:
        doc: The question that the relation answers.
        query: SQL that gives the rows.
        rows: The rows of base tables behind them, as text.
        total: All rows, shown or not.
        why: Why there is nothing to show; the section is then only this line.
        more: The rows that were left out, and how to see them.
    """

    name: str
    title: str
    doc: str
    shape: Shape
    query: str = ""
    rows: str = ""
    total: int = 0
    why: str | None = None
    grid: Grid | None = None
    more: str | None = None

    @property
    def narrow(self) -> bool:
        """Tell whether the table fits into half of the page."""
        grid = self.grid
        return (
            grid is not None
            and len(grid.heads) <= _NARROW
            and not any(cell.look == "long" for row in grid.rows for cell in row)
        )


def blank_sections() -> Iterator[Section]:
    """Yield every section of a run without its rows, in the order of the page."""
    models = {name: m for name, m in catalog().models.items() if m.report}
    others = {name for name, model in models.items() if "run_id" in model.grain}
    for name in (*SHAPES, *sorted(others - SHAPES.keys() - _ELSEWHERE)):
        if name not in models:
            yield Section(name, SHAPES[name].title or name, tables()[name].doc, SHAPES[name])
            continue
        model = models[name]
        own = ", ".join(c.name for c in catalog().columns[name] if c.name != "run_id")
        shape = SHAPES.get(name) or Shape(own, "The input has no such rows.")
        keys = ", ".join(map(quoted, model.grain))
        shape = replace(shape, order=shape.order or keys)
        yield Section(name, model.report or name, model.doc, shape)


def read_sections(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]
) -> dict[str, list[Section]]:
    """Return the sections of each run; those without anything to show come last."""
    found: dict[str, list[Section]] = {run_id: [] for run_id in run_ids}
    limit = max(_ROWS_AT_LEAST, _ROWS_OF_PAGE // max(1, len(run_ids)))
    sources = {section.name: source_of(section.name) for section in blank_sections()}
    counts: dict[str, dict[str, int]] = {run_id: {} for run_id in run_ids}
    for table in sorted({table for source in sources.values() for table in source.tables}):
        counted_runs = f'FROM "{table}" SEMI JOIN {PAGE_RUNS} USING (run_id) GROUP BY run_id'
        for row in page_rows(con, f"SELECT run_id, count(*) AS n {counted_runs}"):
            counts[row["run_id"]][table] = row["n"]
    for blank in blank_sections():
        columns = _columns(blank)
        rows = _read(con, blank, min(limit, blank.shape.rows))
        for run_id in run_ids:
            n = counts[run_id]
            read = [f"{counted(n[t], 'row')} of {t}" for t in sources[blank.name].tables if t in n]
            query = f"FROM {blank.name} WHERE run_id = {literal(run_id)}"
            section = replace(blank, query=query, rows=", ".join(read) or "no rows")
            found[run_id].append(_fill(section, columns, rows.get(run_id, [])))
    return {
        run_id: sorted(sections, key=lambda section: section.why is not None)
        for run_id, sections in found.items()
    }


def _columns(section: Section) -> list[Column]:
    found = []
    for shown in section.shape.columns.split(", "):
        relation, _, column = shown.rpartition(".")
        known = {c.name: c for c in relation_columns(relation or section.name)}
        found.append(known[column])
    return [*found, *section.shape.own]


def _read(con: duckdb.DuckDBPyConnection, section: Section, limit: int) -> dict[str, list[Row]]:
    shape = section.shape
    rows = page_rows(
        con,
        f"""
        SELECT *, count(*) OVER (PARTITION BY run_id) AS "_rows"
        FROM ({shape.source or f'FROM "{section.name}"'})
        SEMI JOIN {PAGE_RUNS} USING (run_id)
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY {shape.pick or shape.order})
            <= {limit}
        ORDER BY run_id, {shape.order}
        """,
    )
    return grouped(rows)


def _fill(section: Section, columns: Sequence[Column], rows: list[Row]) -> Section:
    shape = section.shape
    if not rows:
        return replace(section, why=shape.empty)
    if shape.headline and all(row[shape.headline] is None for row in rows):
        return replace(section, why=_reasons(rows))
    shown = [
        column
        for column in columns
        if _says_something(column, rows)
        and (column not in shape.own or any(row[column.name] is not None for row in rows))
    ]
    bars = [row[shape.bar] for row in rows if row[shape.bar] is not None] if shape.bar else []
    largest = max(bars, default=0.0)
    heads = [head(column) for column in shown]
    drawn = [_drawn(shape, column, rows, largest) for column in shown]
    cells = [list(line) for line in zip(*drawn, strict=True)]
    if shape.parts:
        heads.insert(_STACK_PLACE, _STACK_HEAD)
        for row, line in zip(rows, cells, strict=True):
            line.insert(_STACK_PLACE, _stack(shape, row))
    total = rows[0]["_rows"]
    some = f"{count(len(rows))} of {count(total)} rows"
    more = f'{some}. All of them: tracelake query "{section.query}"' if total > len(rows) else None
    return replace(section, grid=Grid(heads, cells), total=total, more=more)


def _reasons(rows: Sequence[Row]) -> str:
    named = sorted({str(row["reason"]) for row in rows if row.get("reason")})
    return "\n".join(f"{name}: {reasons()[name]}" if name in reasons() else name for name in named)


def _says_something(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether a column is worth showing: not an empty text or a flag that is never set."""
    if column.type not in {"VARCHAR", "BOOLEAN"}:
        return True
    return any(row[column.name] for row in rows)


def _drawn(shape: Shape, column: Column, rows: Sequence[Row], largest: float) -> list[Cell]:
    values = [row[column.name] for row in rows]
    cells = list(map(printer(column), values))
    if column.name == "stage":
        return [
            _ALL_STAGES if value is None and row.get("basis") else plain
            for value, row, plain in zip(values, rows, cells, strict=True)
        ]
    if column.name != shape.bar or largest <= 0:
        return cells
    whole = 1.0 if unit_of(column.name, column.unit) == "%" else largest
    marks = [row[shape.mark] for row in rows] if shape.mark else [None] * len(rows)
    return [
        plain
        if value is None
        else replace(
            plain, bar=(_percent(value, whole), None if mark is None else _percent(mark, 1.0))
        )
        for value, mark, plain in zip(values, marks, cells, strict=True)
    ]


def _stack(shape: Shape, row: Row) -> Cell:
    whole = shape.whole and row[shape.whole]
    if not whole:
        return Cell(NOTHING, look="none")
    parts = []
    for number, name in enumerate(shape.parts):
        if row[name]:
            width = _percent(row[name], whole)
            parts.append((number, width, f"{label(name)} {percent(row[name] / whole)}"))
    return Cell("", parts=parts)


def _percent(value: float, whole: float) -> float:
    return round(min(100.0, max(0.0, 100 * value / whole)), 1)
