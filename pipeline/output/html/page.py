"""Write the report in one of its formats."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from tracelake.base.errors import UsageError
from tracelake.base.files import put_output, replaceable
from tracelake.lake.store import Lake
from tracelake.output.html.content import read_content
from tracelake.output.html.digest import FileType, render_mail, render_markdown
from tracelake.output.html.render import render_html

STDOUT = Path("-")


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
    form: ReportFormat = ReportFormat.HTML,
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
        now: Printed as the time of the report; the system's by default.

    Raises:
        UsageError: A name matches no run or several, a file cannot be written, or pictures would
            have to go to standard output.
        LakeError: There is no warehouse, or it cannot be read.
    """
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
