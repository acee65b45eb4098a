"""Writes the report: one HTML file with all it needs inside."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import jinja2

from pipeline import __version__
from pipeline.errors import UsageError
from pipeline.lake import Lake
from pipeline.models import catalog, relation_columns
from pipeline.report.attention import Group, read_attention
from pipeline.report.cells import head
from pipeline.report.charts import CHARTED_RUNS, CHARTED_SECTIONS, draw_charts
from pipeline.report.reading import Warehouse, earliest, select_runs
from pipeline.report.runs import HEADLINE, count_formats, read_facts, read_headline
from pipeline.report.sections import read_sections, shapes
from pipeline.schema import Column, reasons

# A page that opens at once: the newest runs, and of these what needs attention in full.
LISTED_RUNS = 1000
DETAILED_RUNS = 100
OPEN_RUNS = 3

_FOLDER = Path(__file__).resolve().parent
_PAGE = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class ReportResult:
    """A written page: where it is, the runs it is about, its size."""

    path: Path
    run_ids: tuple[str, ...]
    bytes: int

    @property
    def runs(self) -> int:
        """How many runs the page is about."""
        return len(self.run_ids)


def write_report(
    lake: Lake,
    out: Path,
    *,
    runs: Sequence[str] | None = None,
    since: timedelta | None = None,
    now: datetime | None = None,
) -> ReportResult:
    """Writes the page about a lake's warehouse and puts it in place at once.

    Args:
        out: The file; its folder is made.
        runs: Only these.
        since: Only runs whose date is at most this long before `now`; runs without one are left
            out. Dates of runs are taken to be on the clock of `now`.
        now: Printed as the time of the page; the system's by default.

    Raises:
        UsageError: A named run is not in the lake, or the file cannot be written.
        LakeError: There is no warehouse, or it cannot be read.
    """
    now = now or datetime.now().astimezone()
    with Warehouse(lake) as warehouse:
        run_ids, undated = select_runs(warehouse, runs, earliest(now, since))
        page = _render(
            warehouse, lake, run_ids, undated=undated, named=bool(runs), since=since, now=now
        )
    written = page.encode("utf-8", "backslashreplace")
    _publish(written, out)
    return ReportResult(out, tuple(run_ids), len(written))


def _render(
    warehouse: Warehouse,
    lake: Lake,
    run_ids: Sequence[str],
    *,
    undated: int,
    named: bool,
    since: timedelta | None,
    now: datetime,
) -> str:
    warehouse.page_about(run_ids)
    groups = read_attention(warehouse, inputs=not named)
    urgent = _by_urgency(run_ids, groups)
    listed = set(urgent[:LISTED_RUNS])
    detailed = frozenset(urgent[:DETAILED_RUNS])
    headline = read_headline(warehouse, [r for r in run_ids if r in listed], groups, detailed)
    in_full = [run_id for run_id in run_ids if run_id in detailed]
    warehouse.page_about(in_full)
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    return _PAGE.get_template("page.html").render(
        lake=lake.root.name,
        now=now,
        version=__version__,
        since=None if since is None else f"{since / timedelta(hours=1):g} h",
        undated=undated,
        total=len(run_ids),
        listed=len(listed),
        formats=count_formats(headline) if len(listed) == len(run_ids) else "",
        groups=groups,
        headline=headline,
        runs=in_full,
        open_runs=OPEN_RUNS,
        facts=read_facts(warehouse),
        sections=read_sections(warehouse, in_full),
        charts=draw_charts(warehouse, urgent[:CHARTED_RUNS]),
        charted_sections=CHARTED_SECTIONS,
        coverage_title=_title("coverage"),
        attention={run_id: [g for g in groups if run_id in g.runs] for run_id in in_full},
        glossary=_glossary(),
        reasons=reasons(),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _by_urgency(run_ids: Sequence[str], groups: Sequence[Group]) -> list[str]:
    """Runs that need attention first, by the gravest kind, else the newest first."""
    ranks = {run_id: n for n, group in reversed(list(enumerate(groups))) for run_id in group.runs}
    return sorted(run_ids, key=lambda run_id: ranks.get(run_id, len(groups)))


def _glossary() -> list[tuple[str, str, list[tuple[str, Column]]]]:
    """Relations of the page with title, and by label the columns shown of them."""
    relations: list[tuple[str, str, Sequence[str] | None]] = [
        ("run_summary", _title("run_summary"), HEADLINE),
        ("runs", "Facts of a run", None),
    ]
    relations += [(name, title, shape.columns) for name, title, _, shape in shapes()]
    relations += [("coverage", _title("coverage"), None)]
    return [
        (
            name,
            title,
            [(head(c).label, c) for c in relation_columns(name) if not shown or c.name in shown],
        )
        for name, title, shown in relations
    ]


def _title(model: str) -> str:
    return catalog().models[model].report or model


def _publish(content: bytes, out: Path) -> None:
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            os.replace(beside, out)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the report: {error.strerror}", path=out, hint="choose another file"
        ) from error
