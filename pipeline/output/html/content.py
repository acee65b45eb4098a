"""Read the content of a report from the warehouse; writers lay it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath

import duckdb
from markupsafe import Markup

from tracelake.base.figures import count
from tracelake.lake.store import Lake
from tracelake.output.html.attention import Group, read_attention, read_verdicts
from tracelake.output.html.cells import NOTHING, Grid, Row
from tracelake.output.html.charts.kind import Kind, Series
from tracelake.output.html.charts.series import KINDS, read_series
from tracelake.output.html.incidents import Fleet, read_fleet_view, read_shares, read_waterfalls
from tracelake.output.html.links import rate_links
from tracelake.output.html.reading import PAGE_RUNS, page_about, select_runs
from tracelake.output.html.runs import Facts, read_facts, read_headline
from tracelake.output.html.sections import Section, read_sections
from tracelake.output.html.whatif import WhatIf, read_whatif
from tracelake.warehouse.warehouse import ask, open_beside, views_of_runs

# Limits so that a report opens at once: runs in the table, and runs in full.
LISTED_RUNS = 1000
DETAILED_RUNS = 100
# A page about a run of 16,384 ranks sorts millions of calls; beyond this DuckDB spills to disk.
_ENGINE_BYTES = 700_000_000
_FORMATS = f"""
    SELECT format, count(*) FROM runs SEMI JOIN {PAGE_RUNS} USING (run_id)
    GROUP BY format ORDER BY format
"""


@dataclass(frozen=True, slots=True)
class Content:
    """A report.

    Attributes:
        lake: Name of the lake.
        place: The lake's absolute path, or its URI.
        now: When it was written.
        since: Maximum age of its runs, as text; None without a limit.
        undated: Runs left out because they have no date.
        late: Older runs that arrived since the last report.
        run_ids: Runs of the report, the newest first.
        formats: Number of runs per format, as text; empty if not all are listed.
        urgent: The same, those with the most severe problems first.
        groups: Findings.
        headline: A row for each of the first runs, those with the most severe problems first.
        stepless: The same for runs without steps.
        view: Incidents, opportunities, and step times of configurations.
        verdicts: Findings of the runs in full.
        price: Of a GPU hour.
        shares: Time of each operation in a step of a run in full, by its name.
        waterfalls: Where the step time of a run in full went, against its baseline.
        whatif: What its step would have taken.
        in_full: Runs that have sections, in the order of `urgent`; the rest is by run.
    """

    lake: str
    place: str
    now: datetime
    since: str | None
    undated: int
    late: int
    run_ids: Sequence[str]
    formats: str
    urgent: Sequence[str]
    groups: Sequence[Group]
    headline: Grid
    stepless: Grid
    view: Fleet
    verdicts: Mapping[str, Sequence[Row]]
    waterfalls: Mapping[str, Markup]
    whatif: Mapping[str, WhatIf]
    price: float | None
    shares: Mapping[str, Mapping[str, float]]
    in_full: Sequence[str]
    facts: Mapping[str, Facts]
    sections: Mapping[str, Sequence[Section]]
    series: Mapping[str, Mapping[str, Series]]

    def attention(self, run_id: str) -> list[Group]:
        """Return the findings of a run."""
        return [group for group in self.groups if run_id in group.runs]

    def charts(self, run_id: str) -> dict[str, list[Kind]]:
        """Return a run's charts by section."""
        found: dict[str, list[Kind]] = {}
        for kind in KINDS:
            if kind.name in self.series[run_id]:
                found.setdefault(kind.section, []).append(kind)
        return found

    def brief(self, run_id: str) -> list[str]:
        """Return a few words for the heading of a run: date, size, step time."""
        shown = ("date", "size", "step p50", "over baseline")
        for grid in (self.headline, self.stepless):
            if run_id in grid.keys:
                row = grid.rows[grid.keys.index(run_id)]
                return [
                    f"{value.text} {head.unit or ''}".strip()
                    for head, value in zip(grid.heads, row, strict=True)
                    if head.label in shown and value.text not in {"", NOTHING}
                ]
        return []

    def cards(self) -> dict[str, list[tuple[str, str | None, str]]]:
        """Return the main figures of each run: label, unit, value."""
        return {
            run_id: [
                (shown.label, shown.unit, value.text)
                for shown, value in zip(grid.heads, row, strict=True)
                if shown.numeric and value.text != NOTHING
            ]
            for grid in (self.headline, self.stepless)
            for run_id, row in zip(grid.keys, grid.rows, strict=True)
        }


def read_content(
    lake: Lake,
    runs: Sequence[str] | None,
    since: timedelta | None,
    late: Sequence[str],
    now: datetime,
    price: float | None,
    links: Mapping[str, float],
) -> Content:
    """Read a report from a lake's warehouse; for the arguments see `write_report`."""

    def read(con: duckdb.DuckDBPyConnection) -> Content:
        # Dates of runs are on the clock of `now`, without a zone.
        after = None if since is None else now.replace(tzinfo=None) - since
        run_ids, undated = select_runs(con, runs, after, late)
        page_about(con, run_ids)
        formats = con.execute(_FORMATS).fetchall() if len(run_ids) <= LISTED_RUNS else []
        groups = read_attention(con, inputs=not runs)
        places = dict(con.execute("SELECT run_id, urgency FROM run_list").fetchall())
        urgent = sorted(run_ids, key=places.__getitem__)
        in_full = urgent[:DETAILED_RUNS]
        detailed = frozenset(in_full)
        view = read_fleet_view(con, detailed, tests=not runs)
        page_about(con, urgent[:LISTED_RUNS])
        headline, stepless = read_headline(con, detailed)
        page_about(con, in_full)
        views = views_of_runs(con, lake, in_full)
        con.execute(views)
        rate_links(con, links)
        # Half of the time is DuckDB's, half is Python's.
        with open_beside(lake, con) as other, ThreadPoolExecutor(1, "charts") as thread:
            other.execute(views)
            charts = thread.submit(read_series, other, in_full)
            return Content(
                lake=PurePosixPath(lake.name).name,
                place=lake.name,
                now=now,
                since=None if since is None else f"{since / timedelta(hours=1):g} h",
                undated=undated,
                late=len(set(late) & set(run_ids)),
                run_ids=run_ids,
                formats=", ".join(f"{count(runs)} {name}" for name, runs in formats),
                urgent=urgent,
                groups=groups,
                headline=headline,
                stepless=stepless,
                view=view,
                verdicts=read_verdicts(con),
                waterfalls=read_waterfalls(con, in_full),
                whatif=read_whatif(con),
                price=price,
                shares=read_shares(con),
                in_full=in_full,
                facts=read_facts(con),
                sections=read_sections(con, in_full),
                series=charts.result(),
            )

    return ask(lake, "the report", read, memory=_ENGINE_BYTES)
