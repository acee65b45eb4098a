"""Write the report: one self-contained HTML page, or another of its formats."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from tracelake import __version__
from tracelake.base import figures
from tracelake.base.disk_cache import cache_of
from tracelake.base.errors import UsageError
from tracelake.base.files import STDOUT, put_output, replaceable
from tracelake.base.text import counted, printable, with_lake
from tracelake.lake.store import Lake
from tracelake.models.catalog import catalog
from tracelake.models.describe import relation_columns
from tracelake.output.html.cells import head, heads_html, rows_html
from tracelake.output.html.charts.series import KINDS
from tracelake.output.html.charts.vega import digest, library, packed, spec
from tracelake.output.html.content import Content, read_content
from tracelake.output.html.digest import FileType, render_mail, render_markdown
from tracelake.output.html.palette import properties
from tracelake.output.html.runs import BESIDE_BASELINE
from tracelake.output.html.sections import Source, blank_sections, source_of
from tracelake.output.html.shapes import PART_COLORS
from tracelake.schema.tables import Column, reasons
from tracelake.warehouse.headline import HEADLINE

# If a page has at most this many runs, they are expanded.
OPEN_RUNS = 3
# Number of runs stored as HTML, the most urgent; others are compressed until they are expanded.
PLAIN_RUNS = 10

_FOLDER = Path(__file__).resolve().parent


class _Compiled(jinja2.BytecodeCache):
    """Stores compiled templates: jinja compares the hash of their text."""

    def __init__(self) -> None:
        source = Path(__file__).read_text()
        self._stored = cache_of("templates", jinja2.__version__, sys.version, source)

    def load_bytecode(self, bucket: Bucket) -> None:
        """See `jinja2.BytecodeCache`."""
        if (stored := self._stored.read(bucket.key)) is not None:
            bucket.bytecode_from_string(stored)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """See `jinja2.BytecodeCache`."""
        self._stored.write(bucket.key, bucket.bytecode_to_string())


_PAGE = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    bytecode_cache=_Compiled(),
    autoescape=True,
    # Remove control characters and marks that reverse text, which logs may contain.
    finalize=lambda value: printable(value) if type(value) is str else value,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGE.globals |= {
    "figures": figures,
    "counted": counted,
    "heads_html": heads_html,
    "rows_html": rows_html,
}


def render_html(content: Content) -> str:
    """Return the page; the same content gives the same bytes."""
    drawn = any(content.series.values())
    chart_library, *hashes = library() if drawn else [""]
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    context = {"with_sql": _sources()}
    page = _PAGE.get_template("page.html").render(
        context,
        content=content,
        version=__version__,
        open_runs=OPEN_RUNS,
        bodies=_bodies(content, context),
        packed=content.in_full[PLAIN_RUNS:],
        chart_data=packed(json.dumps(_drawable(content), allow_nan=False)) if drawn else "",
        chart_library=chart_library,
        glossary=_glossary(),
        reasons=reasons(),
        light=properties(dark=False),
        dark=properties(dark=True),
        parts=list(PART_COLORS.values()),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hashes=[digest(script), *hashes],
    )
    return with_lake(page, content.place, html.escape)


def _bodies(content: Content, context: Mapping[str, object]) -> dict[str, str]:
    """Return the part of each run in full: HTML, compressed for all but the first runs."""
    template = _PAGE.get_template("run.html")
    plain, folded = content.in_full[:PLAIN_RUNS], content.in_full[PLAIN_RUNS:]
    cards = content.cards()

    def body(run_id: str) -> str:
        part = template.render(
            context,
            run_id=run_id,
            copy_of=content.view.names[run_id]["copy_of"],
            verdicts=content.verdicts.get(run_id, []),
            waterfall=content.waterfalls.get(run_id),
            whatif=content.whatif.get(run_id),
            said=content.view.said,
            incident_ids={card.row["incident"] for card in content.view.incidents},
            about=content.facts[run_id],
            sections=content.sections[run_id],
            charts=content.charts(run_id),
            cards=cards.get(run_id, []),
            coverage_title=_title("coverage"),
        )
        return with_lake(part, content.place, html.escape)

    with ThreadPoolExecutor(1, "packing") as beside:  # while the next ones are rendered
        texts = beside.map(packed, map(body, folded))
        return {run_id: body(run_id) for run_id in plain} | dict(zip(folded, texts, strict=True))


def _drawable(content: Content) -> dict[str, object]:
    drawn = {name for charts in content.series.values() for name in charts}
    return {
        "specs": {kind.name: spec(kind) for kind in KINDS if kind.name in drawn},
        "canvas": [kind.name for kind in KINDS if kind.canvas],
        "series": content.series,
        "shares": content.shares,
    }


def _sources() -> dict[str, Source]:
    """Return models of the page whose SQL is shown."""
    names = ["run_summary", *(section.name for section in blank_sections()), "coverage"]
    return {name: source for name in names if (source := source_of(name)).sql}


def _glossary() -> list[tuple[str, str, list[tuple[str, Column]]]]:
    """Return relations of the page with title, and the columns shown of them, by label."""
    listed = {column.name: column for column in relation_columns("run_list")}
    heads = {
        "label": "label",
        "run": "hash",
        "date": "run_date",
        "size": "size",
        "copy of": "copy_of",
        "problems": "problems",
    }
    runs = [BESIDE_BASELINE, *((shown, listed[name]) for shown, name in heads.items())]
    return [
        ("run_summary", _title("run_summary"), _columns("run_summary", HEADLINE) + runs),
        ("runs", "Facts of a run", _columns("runs")),
        *(
            (one.name, one.title, _columns(one.name, one.shape.columns.split(", "), one.shape.own))
            for one in blank_sections()
        ),
        ("coverage", _title("coverage"), _columns("coverage")),
    ]


def _columns(
    relation: str, shown: Sequence[str] = (), own: Sequence[Column] = ()
) -> list[tuple[str, Column]]:
    """Return columns by label: those of a relation that are shown, by default all, and others."""
    known = (c for c in relation_columns(relation) if not shown or c.name in shown)
    return [(head(column).label, column) for column in (*known, *own)]


def _title(model: str) -> str:
    return catalog().models[model].report or model


class ReportFormat(StrEnum):
    """Format of a report.

    `html` is one page; `markdown` a text and a folder of pictures; `mail` a message with
    the page attached, for a mail program to address and send.
    """

    HTML = "html"
    MARKDOWN = "markdown"
    MAIL = "mail"


_SUFFIXES = {
    "": ReportFormat.HTML,
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
    ".md": ReportFormat.MARKDOWN,
    ".eml": ReportFormat.MAIL,
}
# Suffixes of files that would not be what their name says.
_OTHERS = frozenset({".pdf", ".png", ".svg", ".jpg", ".json", ".csv", ".txt", ".docx", ".xlsx"})


def form_of(name: str | None, out: Path) -> ReportFormat:
    """Return the format given by name, else by the file's suffix, else HTML.

    Raises:
        UsageError: There is no such format, or the suffix is that of another one.
    """
    if name is None:
        suffix = out.suffix.lower()
        if suffix in _OTHERS:
            raise UsageError(
                f"the report cannot be written as {suffix}",
                hint="use .html, .md or .eml; a browser prints the HTML page as PDF",
            )
        return _SUFFIXES.get(suffix, ReportFormat.HTML)
    try:
        return ReportFormat(name)
    except ValueError:
        raise UsageError(
            f"unknown report format {name!r}", hint=f"use one of {', '.join(ReportFormat)}"
        ) from None


@dataclass(frozen=True, slots=True)
class ReportResult:
    """A written report: its path, runs and size."""

    path: Path
    run_ids: tuple[str, ...]
    bytes: int

    @property
    def runs(self) -> int:
        """Number of runs in the report."""
        return len(self.run_ids)


def write_report(
    lake: Lake,
    out: Path,
    *,
    runs: Sequence[str] | None = None,
    since: timedelta | None = None,
    late: Sequence[str] = (),
    now: datetime | None = None,
    form: ReportFormat | None = None,
    pictures: FileType = "png",
    price: float | None = None,
    links: Mapping[str, float] | None = None,
) -> ReportResult:
    """Write the report about a lake's warehouse and put it in place atomically.

    Args:
        out: The file; its folder is made. `-` is standard output. Pictures of Markdown go to a
            folder `<stem>.charts` beside it, before the text.
        runs: Only these; an id, a unique part of one, or `latest`.
        since: Only runs whose date is at most this long before `now`; runs without one are left
            out. Dates of runs are assumed to be on the clock of `now`.
        late: Runs that are in the report whatever their date.
        price: Of a GPU hour; costs are then shown in money too.
        links: Rated speeds in GB/s by class of link, see `parse_links`.
        form: What the suffix of the file says, by default.
        now: Printed as the time of the report; the system's by default.

    Raises:
        UsageError: A name matches no run or several, a file cannot be written, or pictures would
            have to go to standard output.
        LakeError: There is no warehouse, or it cannot be read.
    """
    form = form or form_of(None, out)
    if form is ReportFormat.MARKDOWN and (out == STDOUT or replaceable(out) is None):
        raise UsageError(
            "Markdown has picture files and cannot go to standard output or a device",
            hint="give a file with -o, or write html or mail",
        )
    content = read_content(
        lake, runs, since, late, now or datetime.now().astimezone(), price, links or {}
    )
    match form:
        case ReportFormat.HTML:
            written = render_html(content).encode("utf-8", "backslashreplace")
        case ReportFormat.MAIL:
            written = render_mail(content, render_html(content))
        case ReportFormat.MARKDOWN:
            folder = out.with_name(f"{out.stem}.charts")
            text, drawn = render_markdown(content, folder.name, pictures)
            written = text.encode("utf-8", "backslashreplace")
            for picture in drawn:
                _publish(picture.content, folder / picture.name)
    _publish(written, out)
    return ReportResult(out, tuple(content.run_ids), len(written))


def _publish(content: bytes, out: Path) -> None:
    if out == STDOUT:
        sys.stdout.buffer.write(content)
    else:
        put_output(out, content)
