"""Read the runs of the page: a row of main figures each, and the facts of those in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from tracelake.base.figures import minute
from tracelake.models.describe import relation_columns
from tracelake.output.html.cells import NOTHING, Cell, Grid, Head, Row, cell, head, nothing, spark
from tracelake.output.html.reading import PAGE_RUNS, page_rows
from tracelake.output.terminal.facts import missing_figures
from tracelake.schema.tables import Column, reasons
from tracelake.warehouse.headline import HEADLINE, may_run

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
class Facts:
    """The facts about a run other than its figures.

    Attributes:
        known: Columns of `runs` that have a value: label, value, and where it is from.
        seen: The same of `coverage`.
        missing: Figures that cannot be computed, why, and what would provide them.
        attributes: Other attributes of the input; `cut` more are not shown.
    """

    known: Sequence[tuple[str, str, str | None]]
    seen: Sequence[tuple[str, str, str | None]]
    missing: Grid | None
    attributes: Sequence[tuple[str, str]]
    cut: int


def _columns(relation: str, names: Sequence[str]) -> list[Column]:
    known = {column.name: column for column in relation_columns(relation)}
    return [known[name] for name in names]


# A main figure of another relation, and its label.
BESIDE_BASELINE = ("over baseline", _columns("run_history", ("step_p50_ms_change_ratio",))[0])


_LISTED = f"""
    SELECT l.*, r.config, f.words
    FROM run_list AS l
    JOIN runs AS r USING (run_id)
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    LEFT JOIN (
        SELECT
            run_id,
            string_agg(DISTINCT said, ' ' ORDER BY said) AS words
        FROM (
            SELECT run_id, concat_ws(' ', subject, host, device, kind) AS said FROM findings
        ) WHERE run_id IS NOT NULL GROUP BY run_id
    ) AS f USING (run_id)
    ORDER BY l.urgency
"""
# Texts of a column that say nothing; of counts of faults also none of them.
_EMPTY = {name: {"", NOTHING, "0"} for name in ("rejects", "suspects", "stragglers")}
_NOT_LISTED = frozenset({"run_id", "run_date", "step_p50_ms"})


def read_headline(con: duckdb.DuckDBPyConnection, linked: frozenset[str]) -> tuple[Grid, Grid]:
    """Return a row of each run of the page by severity, for runs with steps and for runs without.

    A column in which no row has a value is left out.

    Args:
        linked: Runs that the page shows in full.
    """
    listed = page_rows(con, _LISTED)
    trends = {row["run_id"]: row["ms"] for row in page_rows(con, _TRENDS)}
    rows = _of_page(con, "run_summary")
    runs = [one for one in listed if not one["stepless"]]
    stepless = [one for one in listed if one["stepless"]]
    return _list(runs, rows, trends, linked), _list(stepless, rows, trends, linked)


def _list(
    listed: Sequence[Row],
    rows: Mapping[str, Row],
    trends: Mapping[str, Sequence[float]],
    linked: frozenset[str],
) -> Grid:
    columns = {column.name: column for column in _columns("run_summary", HEADLINE)}
    rest = [column for name, column in columns.items() if name not in _NOT_LISTED]
    over, change = BESIDE_BASELINE
    lines = []
    for one in listed:
        run_id, date = one["run_id"], one["run_date"]
        row = rows[run_id]
        pieces = (entry.rpartition(": ") for entry in row["not_computable"])
        why = {figure: reason for figure, _, reason in pieces}
        link = f"run-{run_id}" if run_id in linked else None
        named = ", ".join(kind.replace("_", " ") for kind in one["problems"])
        named = named or may_run(one["running_until"])
        look = f"attention {one['severity']}"
        dated = Cell(minute(date), look="date" if date else "none")
        lines.append(
            {
                Head("label"): Cell(one["label"], run_id, look="name", link=link),
                Head("problems"): Cell(named, one["problem"], sort=one["urgency"], look=look),
                Head("run"): Cell(one["hash"], run_id, look="hash"),
                Head("date"): dated,
                Head("size"): Cell(one["size"] or "", look="size"),
                head(columns["step_p50_ms"]): _headline_cell(columns["step_p50_ms"], row, why),
                Head(over, "%", numeric=True): cell(change, one[change.name]),
                Head("steps over time"): spark(
                    trends.get(run_id, ()), "Time of each step, without warm-up"
                ),
                **{head(column): _headline_cell(column, row, why) for column in rest},
                Head("copy of"): Cell(one["copy_of"] or "", look="hash"),
            }
        )
    heads = [
        shown
        for shown in (lines[0] if lines else ())
        if any(
            line[shown].spark or line[shown].text not in _EMPTY.get(shown.label, {"", NOTHING})
            for line in lines
        )
    ]
    return Grid(
        heads,
        [[line[shown] for shown in heads] for line in lines],
        [one["run_id"] for one in listed],
        [" ".join(filter(None, (one["run_id"], one["config"], one["words"]))) for one in listed],
    )


def read_facts(con: duckdb.DuckDBPyConnection) -> dict[str, Facts]:
    """Return facts and coverage of the runs of the page."""
    covered = _of_page(con, "coverage")
    return {run_id: _facts(row, covered[run_id]) for run_id, row in _of_page(con, "runs").items()}


def _of_page(con: duckdb.DuckDBPyConnection, relation: str) -> dict[str, Row]:
    """Return the row of each run of the page."""
    rows = page_rows(con, f"FROM {relation} SEMI JOIN {PAGE_RUNS} USING (run_id)")
    return {row["run_id"]: row for row in rows}


def _facts(run: Row, coverage: Row) -> Facts:
    sources = {"run_date": run["date_source"], **(run["topology_source"] or {})}
    known = [
        (head(column).label, cell(column, run[column.name]).text, sources.get(column.name))
        for column in relation_columns("runs")
        if column.name not in _NOT_FACTS and run[column.name] is not None
    ]
    seen = [
        (head(column).label, cell(column, coverage[column.name]).text, None)
        for column in relation_columns("coverage")
        if column.name not in {*run, *_LISTS} and coverage[column.name] not in (None, [])
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
    missing = missing_figures([*entries, *partly], [*hints, *partly_hints])
    heads = [Head(label) for label in ("figure", "reason", "why", "what would provide it")]
    rows = [[Cell(text or NOTHING) for text in figure.values()] for figure in missing]
    return Grid(heads, rows) if rows else None


def _headline_cell(column: Column, row: Row, why: Mapping[str, str]) -> Cell:
    value = row[column.name]
    if value is not None:
        return cell(column, value)
    reason = next((why[figure] for figure in _WHY.get(column.name, ()) if figure in why), None)
    title = f"{reason}: {reasons().get(reason, '')}" if reason else "The input does not say."
    return nothing(column, title)
