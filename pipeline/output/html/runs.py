"""Read the runs of the page: a row of main figures each, and the facts of those in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracelake.models import relation_columns
from tracelake.output.html.attention import Group
from tracelake.output.html.cells import NOTHING, Cell, Grid, Head, Row, cell, head, nothing, spark
from tracelake.output.html.reading import PAGE_RUNS, Warehouse
from tracelake.schema.tables import Column, reasons
from tracelake.warehouse.headline import HEADLINE

# Points of a sparkline; of more, neighbours are merged.
_SPARK_STEPS = 48
_TRENDS = f"""
    WITH counted AS (
        SELECT run_id, step, step_ms,
            1 + (count(*) OVER (PARTITION BY run_id) - 1) // {_SPARK_STEPS} AS merged
        FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE NOT warmup AND step_ms IS NOT NULL
    ),
    points AS (
        SELECT run_id, step // merged AS place, max(step_ms) AS ms
        FROM counted GROUP BY run_id, step // merged
    )
    SELECT run_id, list(ms ORDER BY place) AS ms FROM points GROUP BY run_id
"""
# Main figure -> figure of `coverage.not_computable` that gives the reason if it is missing.
_WHY = {
    "step_p50_ms": ("step_stats.step_ms", "run_summary.step_p50_ms"),
    "bubble_ratio": ("rank_bubbles.bubble_ratio",),
    "slowest_stage": ("step_stats.busiest_stage", "stage_balance.share_ratio"),
    "stragglers": ("straggler_ranks.slowdown",),
    "suspects": ("straggler_ranks.slowdown",),
    "gpu_hours_lost": ("straggler_ranks.slowdown", "run_summary.gpu_hours_lost"),
    "comm_ratio": ("rank_bubbles.bubble_ratio",),
    "busbw_gbps": ("collective_bandwidth.busbw_p50_gbps",),
    "coverage_ratio": ("coverage.coverage_ratio",),
}
_NOT_FACTS = frozenset(
    {"run_id", "source_id", "line", "name", "date_source", "topology_source", "attributes"}
)
_LISTS = ("not_computable", "hints", "partly", "partly_hints")
_ATTRIBUTES = 40


@dataclass(frozen=True, slots=True)
class Fact:
    """A column of `runs` that has a value, with its source."""

    label: str
    cell: Cell
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a run other than its figures.

    Attributes:
        missing: Figures that cannot be computed, why, and what would provide them.
        attributes: Other attributes of the input; `cut` more are not shown.
    """

    known: Sequence[Fact]
    seen: Sequence[Fact]
    missing: Grid | None
    attributes: Sequence[tuple[str, str]]
    cut: int


def _columns(relation: str, names: Sequence[str]) -> list[Column]:
    known = {column.name: column for column in relation_columns(relation)}
    return [known[name] for name in names]


# A main figure of another relation, and its label.
BESIDE_BASELINE = ("over baseline", _columns("run_history", ("step_p50_ms_change_ratio",))[0])


def read_headline(
    warehouse: Warehouse, run_ids: Sequence[str], groups: Sequence[Group], linked: frozenset[str]
) -> Grid:
    """Return one row per run, in the order given.

    Args:
        groups: Findings; each run's row names the kinds.
        linked: Runs that the page shows in full.
    """
    columns = _columns("run_summary", HEADLINE)
    over, change = BESIDE_BASELINE
    trends = {row["run_id"]: row["ms"] for row in warehouse.rows(_TRENDS)}
    changes = {
        row["run_id"]: row[change.name]
        for row in warehouse.rows(
            f"SELECT run_id, {change.name} FROM run_history SEMI JOIN {PAGE_RUNS} USING (run_id)"
        )
    }
    rows = {
        row["run_id"]: row
        for row in warehouse.rows(f"FROM run_summary SEMI JOIN {PAGE_RUNS} USING (run_id)")
    }
    heads = [head(column) for column in columns]
    heads.insert(1, Head("attention"))
    place = 2 + HEADLINE[1:].index("step_p50_ms") + 1
    heads[place:place] = [Head(over, "%", numeric=True), Head("steps over time")]
    cells = []
    for run_id in run_ids:
        row = rows[run_id]
        why = _reasons_of(row)
        link = f"run-{run_id}" if run_id in linked else None
        named = [group.title.lower() for group in groups if run_id in group.runs]
        line = [
            Cell(run_id, look="name", link=link),
            Cell(", ".join(named), look="attention"),
            *(_headline_cell(column, row, why) for column in columns[1:]),
        ]
        line[place:place] = [
            cell(change, changes.get(run_id)),
            spark(trends.get(run_id, ()), "Time of each step, without warm-up"),
        ]
        cells.append(line)
    return Grid(heads, cells)


def read_facts(warehouse: Warehouse) -> dict[str, Facts]:
    """Return facts and coverage of the runs of the page."""
    runs = warehouse.rows(f"FROM runs SEMI JOIN {PAGE_RUNS} USING (run_id)")
    covered = {
        row["run_id"]: row
        for row in warehouse.rows(f"FROM coverage SEMI JOIN {PAGE_RUNS} USING (run_id)")
    }
    return {row["run_id"]: _facts(row, covered[row["run_id"]]) for row in runs}


def _facts(run: Row, coverage: Row) -> Facts:
    sources = {"run_date": run["date_source"], **(run["topology_source"] or {})}
    known = [
        Fact(head(column).label, cell(column, run[column.name]), source)
        for column in relation_columns("runs")
        if column.name not in _NOT_FACTS and run[column.name] is not None
        for source in [sources.get(column.name)]
    ]
    seen = [
        Fact(head(column).label, cell(column, coverage[column.name]))
        for column in relation_columns("coverage")
        if column.name not in {*run, *_LISTS}
    ]
    attributes = sorted((run["attributes"] or {}).items())
    return Facts(
        known,
        seen,
        _missing(coverage),
        attributes[:_ATTRIBUTES],
        max(0, len(attributes) - _ATTRIBUTES),
    )


def _missing(coverage: Row) -> Grid | None:
    entries, hints, partly, partly_hints = (coverage[name] for name in _LISTS)
    if not entries and not partly:
        return None
    heads = [Head(label) for label in ("figure", "reason", "why", "what would provide it")]
    rows = []
    for entry, hint in zip([*entries, *partly], [*hints, *partly_hints], strict=True):
        figure, _, reason = entry.rpartition(": ")
        why = reasons().get(reason.partition(" (")[0], "")
        rows.append([Cell(figure), Cell(reason), Cell(why), Cell(hint or NOTHING)])
    return Grid(heads, rows)


def _headline_cell(column: Column, row: Row, why: Mapping[str, str]) -> Cell:
    value = row[column.name]
    if value is not None:
        return cell(column, value)
    reason = next((why[figure] for figure in _WHY.get(column.name, ()) if figure in why), None)
    said = f"{reason}: {reasons().get(reason, '')}" if reason else "The input does not say."
    return nothing(column, said)


def _reasons_of(row: Row) -> dict[str, str]:
    pieces = (entry.rpartition(": ") for entry in row["not_computable"])
    return {figure: reason for figure, _, reason in pieces}


def count_formats(headline: Grid) -> str:
    """Return the number of runs per format, as text."""
    place = next(i for i, h in enumerate(headline.heads) if h.label == "format")
    counts = Counter(row[place].text for row in headline.rows)
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
