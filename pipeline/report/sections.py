"""Reads the relations of the page for all its runs at once, and lays each run's rows out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.models import catalog, relation_columns
from pipeline.report.cells import NOTHING, Bar, Cell, Grid, Head, Part, Row, cell, head, is_share
from pipeline.report.reading import PAGE_RUNS, Warehouse
from pipeline.report.shapes import SHAPES, WINDOW_PARTS, Shape
from pipeline.schema import Column, reasons, tables

# Shown for all runs at once, or in a form of their own.
_ELSEWHERE = frozenset({"run_summary", "coverage"})
# Rows that a kind of section has in total: with many runs, each shows fewer.
_ROWS_OF_PAGE = 1200
_ROWS_AT_LEAST = 8
_WINDOW_HEAD = Head("window", None, "Parts of the pipeline window; numbers stand to the right.")


@dataclass(frozen=True, slots=True)
class Section:
    """A relation's rows of one run.

    Attributes:
        why: Why there is nothing to show; the section is this line then.
        doc: What the relation answers.
        more: What was left out, and how to see it.
        legend: Parts of the stacked bars.
        note: What the reader must know about the figures.
    """

    name: str
    title: str
    doc: str
    why: str | None = None
    grid: Grid | None = None
    more: str | None = None
    note: str | None = None
    legend: Sequence[str] = ()


def shapes() -> Iterator[tuple[str, str, str, Shape]]:
    """Name, title, doc and shape of every section of a run, in the order of the page."""
    models = {name: m for name, m in catalog().models.items() if m.report and not m.fleet}
    for name, shape in SHAPES.items():
        if name in models:
            yield name, models[name].report or name, models[name].doc, shape
        else:
            yield name, shape.title or name, tables()[name].doc, shape
    for name in sorted(models.keys() - SHAPES.keys() - _ELSEWHERE):
        model = models[name]
        own = tuple(c.name for c in catalog().columns[name] if c.name != "run_id")
        keys = ", ".join(f'"{key}"' for key in model.grain)
        yield name, model.report or name, model.doc, Shape(own, keys, "The input has no such rows.")


def read_sections(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, list[Section]]:
    """Sections of each run, those without anything to show last."""
    found: dict[str, list[Section]] = {run_id: [] for run_id in run_ids}
    limit = max(_ROWS_AT_LEAST, _ROWS_OF_PAGE // max(1, len(run_ids)))
    for name, title, doc, shape in shapes():
        columns = _columns(name, shape)
        rows = _read(warehouse, name, shape, min(limit, shape.rows))
        for run_id in run_ids:
            section = Section(name, title, doc, note=shape.note)
            found[run_id].append(_fill(section, shape, columns, rows.get(run_id, []), run_id))
    return {
        run_id: sorted(sections, key=lambda section: section.why is not None)
        for run_id, sections in found.items()
    }


def _columns(name: str, shape: Shape) -> list[Column]:
    found = []
    for shown in shape.columns:
        relation, _, column = shown.rpartition(".")
        known = {c.name: c for c in relation_columns(relation or name)}
        found.append(known[column])
    return found


def _read(warehouse: Warehouse, name: str, shape: Shape, limit: int) -> dict[str, list[Row]]:
    rows = warehouse.rows(
        f"""
        SELECT * FROM (
            SELECT *, count(*) OVER (PARTITION BY run_id) AS "_rows"
            FROM ({shape.source or f'FROM "{name}"'})
            SEMI JOIN {PAGE_RUNS} USING (run_id)
            QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY {shape.pick or shape.order})
                <= {limit}
        ) ORDER BY run_id, {shape.order}
        """
    )
    by_run: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_run[row["run_id"]].append(row)
    return by_run


def _fill(
    section: Section, shape: Shape, columns: Sequence[Column], rows: list[Row], run_id: str
) -> Section:
    name, title, doc = section.name, section.title, section.doc
    if not rows:
        return Section(name, title, doc, why=shape.empty)
    if shape.headline and all(row[shape.headline] is None for row in rows):
        return Section(name, title, doc, why=_reasons(rows))
    shown = [c for c in columns if _says_something(c, rows)]
    total = rows[0]["_rows"]
    more = None
    if total > len(rows):
        more = (
            f"{len(rows):,} of {total:,} rows. All of them:"
            f" tracelake query \"FROM {name} WHERE run_id = '{run_id}'\""
        )
    windowed = name == "rank_bubbles"
    largest = _largest(shape, rows)
    heads = [head(column) for column in shown]
    grid = [[_drawn(shape, column, row, largest) for column in shown] for row in rows]
    if windowed:
        heads.insert(2, _WINDOW_HEAD)
        for cells, row in zip(grid, rows, strict=True):
            cells.insert(2, _stack(row))
    return Section(
        name,
        title,
        doc,
        grid=Grid(heads, grid),
        more=more,
        note=section.note,
        legend=[_label(part) for part in WINDOW_PARTS] if windowed else (),
    )


def _reasons(rows: Sequence[Row]) -> str:
    named = sorted({str(row["reason"]) for row in rows if row.get("reason")})
    return " ".join(f"{name}: {reasons()[name]}" if name in reasons() else name for name in named)


def _says_something(column: Column, rows: Sequence[Row]) -> bool:
    """Text that no row has and flags that none bears are left out; numbers never are."""
    if column.type not in {"VARCHAR", "BOOLEAN"}:
        return True
    return any(row[column.name] for row in rows)


def _largest(shape: Shape, rows: Sequence[Row]) -> float:
    values = [row[shape.bar] for row in rows if row[shape.bar] is not None] if shape.bar else []
    return max(values, default=0.0)


def _drawn(shape: Shape, column: Column, row: Row, largest: float) -> Cell:
    value = row[column.name]
    plain = cell(column, value)
    if column.name == "stage" and value is None and row.get("basis"):
        return Cell("all", look="num")
    if column.name != shape.bar or value is None or largest <= 0:
        return plain
    share = is_share(column)
    mark = row[shape.mark] if shape.mark else None
    bar = Bar(_percent(value, 1.0 if share else largest), None if mark is None else 100 * mark)
    return Cell(plain.text, plain.title, plain.sort, plain.look, bar=bar)


def _stack(row: Row) -> Cell:
    window = row["window_ms"]
    if not window:
        return Cell(NOTHING, look="none")
    parts = [
        Part(
            number,
            _percent(row[name], window),
            f"{_label(name)} {row[name]:,.2f} ms, {_percent(row[name], window):.1f} %",
        )
        for number, name in enumerate(WINDOW_PARTS)
        if row[name]
    ]
    return Cell("", parts=parts)


def _label(part: str) -> str:
    return part.removesuffix("_ms").replace("_", " ")


def _percent(value: float, whole: float) -> float:
    return round(min(100.0, max(0.0, 100 * value / whole)), 2)


