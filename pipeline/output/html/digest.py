"""Write short reports for places without scripts: Markdown with pictures, and mail."""

from __future__ import annotations

import email.message
import email.policy
import html
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tracelake import __version__
from tracelake.base.figures import cost, count, seen_in
from tracelake.base.text import counted, printable, with_lake
from tracelake.output.html.attention import title_of
from tracelake.output.html.cells import Grid
from tracelake.output.html.charts.kind import Kind, Series
from tracelake.output.html.charts.vega import picture
from tracelake.output.html.content import Content
from tracelake.output.html.incidents import Incident

# Number of runs listed, and of runs with charts: those with findings first.
LISTED_RUNS = 50
DRAWN_RUNS = 5
# Charts of a mail: for stragglers, bubbles and regressions.
_MAILED = ("timeline", "windows", "slow_ranks", "history", "step_times", "stages", "layer_heat")
_MAILED_RUNS = 3

_MARKUP = re.compile(r"([\\`*\[\]<>#|!~&]|(?<!\w)_|_(?!\w))")

FileType = Literal["png", "svg"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as a file.

    Attributes:
        series: The rows that it shows.
    """

    name: str
    kind: Kind
    series: Series
    file_type: FileType

    @property
    def content(self) -> bytes:
        """The bytes of the file, which are drawn at each use."""
        return picture(self.kind, self.series, self.file_type)


def pictures(
    content: Content, run_id: str, file_type: FileType, only: Collection[str] | None = None
) -> Iterator[Picture]:
    """Yield a run's charts, or only those of these names, in the order of the page."""
    for kind in itertools.chain(*content.charts(run_id).values()):
        if only is None or kind.name in only:
            series = content.series[run_id][kind.name]
            yield Picture(f"{run_id}-{kind.name}.{file_type}", kind, series, file_type)


def render_markdown(
    content: Content, folder: str, file_type: FileType
) -> tuple[str, list[Picture]]:
    """Return the report as Markdown, with its pictures.

    Args:
        folder: Folder of the pictures, relative to the text.
    """
    lines = [f"# {_plain(title(content))}", "", _plain(about(content)), ""]
    for heading, items, command in _problems(content):
        lines += [f"## {_plain(heading)}", ""]
        for name, text in items:
            named = f"**{_plain(name)}**: " if name else ""
            lines.append(f"- {named}{_plain(text)}")
        lines += ["", f"All of them: `{command}`", ""]
    listed = set(content.urgent[:LISTED_RUNS])
    for name, grid in (("Runs", content.headline), ("Runs without steps", content.stepless)):
        if listed.intersection(grid.keys):
            lines += [f"## {name}", "", *_table(grid, listed), ""]
    if len(content.run_ids) > LISTED_RUNS:
        lines += [f"{LISTED_RUNS} of {counted(len(content.run_ids), 'run')}.", ""]
    drawn = []
    for run_id in content.urgent[:DRAWN_RUNS]:
        charts = list(pictures(content, run_id, file_type))
        missing = content.facts[run_id].missing
        if charts or missing is not None:
            lines += [f"## {_plain(run_id)}", ""]
        for shown in charts:
            lines += [f"![{_plain(shown.kind.caption)}]({folder}/{shown.name})", ""]
            lines += [_plain(shown.kind.caption), ""]
        if missing is not None:
            lines += ["Figures that cannot be computed:", "", *_table(missing), ""]
        drawn += charts
    return "\n".join(lines).rstrip() + "\n", drawn


def render_mail(content: Content, page: str) -> bytes:
    """Return the report as a mail without addresses: text, HTML with pictures, page attached.

    Args:
        page: The report as one HTML page.
    """
    mail = email.message.EmailMessage(policy=email.policy.SMTP)
    mail["Subject"] = title(content)
    text, _ = render_markdown(content, "", "png")
    mail.set_content("\n".join(line for line in text.splitlines() if not line.startswith("![")))
    shown = [
        drawn
        for run_id in content.urgent[:_MAILED_RUNS]
        for drawn in pictures(content, run_id, "png", _MAILED)
    ]
    mail.add_alternative(_mail_body(content, shown), subtype="html")
    body = mail.get_payload()[1]  # type: ignore[index]
    for drawn in shown:
        body.add_related(  # type: ignore[union-attr]
            drawn.content, "image", "png", cid=f"<{drawn.name}>", filename=drawn.name
        )
    name = f"tracelake-{content.now:%Y-%m-%d}.html"
    mail.add_attachment(page.encode(), "text", "html", filename=name)
    # Boundaries are random by default; the same report gives the same mail.
    for number, part in enumerate(part for part in mail.walk() if part.is_multipart()):
        part.set_boundary(f"=-tracelake-{number}-=")
    return mail.as_bytes()


def title(content: Content) -> str:
    """Return what is open in one line: findings, and incidents of tests, which are no findings."""
    counts = Counter({title_of(kind): n for kind, n in content.view.tested.items()})
    notices = {group.title: group.notices for group in content.groups}
    for group in content.groups:
        if group.count > group.over or group.notices:
            counts[group.title] += group.count - group.over
    nothing = "no open problems" if content.groups else "no problems found"
    counted_names = [
        f"{name.lower()} {count(n) if n else counted(notices[name], 'notice')}"
        for name, n in counts.items()
    ]
    lake = " ".join(printable(content.lake).split())  # it is in a mail's header
    return f"tracelake {lake}: {', '.join(counted_names) or nothing}"


def about(content: Content) -> str:
    """Return when the report was written, and what it covers."""
    formats = f" ({content.formats})" if content.formats else ""
    dated = f", dated within {content.since}" if content.since else ""
    late = f" or arrived since the last report ({count(content.late)})" if content.late else ""
    runs = counted(len(content.run_ids), "run")
    when = content.now.isoformat(" ", "minutes")
    return f"{when}: {runs}{formats}{dated}{late}. tracelake {__version__}"


def _problems(content: Content) -> Iterator[tuple[str, Sequence[tuple[str | None, str]], str]]:
    """Yield headings with the first open incidents or findings, and what lists all of them.

    Of each it is the subject, or the run if there is one, and what is said of it.
    """
    named = partial(with_lake, lake=content.place)
    open_ones = [incident for incident in content.view.incidents if incident.row["open"]]
    if open_ones:
        items = [(incident.subject, named(_incident(content, incident))) for incident in open_ones]
        yield f"Incidents ({count(content.view.open)})", items, named("tracelake ask incidents")
    for group in content.groups:
        found = [(name, named(text)) for name, text in group.items]
        command = named(f'tracelake query "{group.query}"')
        yield f"{group.title} ({group.counted})", found, command


def _incident(content: Content, incident: Incident) -> str:
    row, view = incident.row, content.view
    latest = view.names[row["latest_run"]]
    since = f" since {row['since']:%Y-%m-%d}" if row["since"] else ""
    seen = seen_in(row["slow_runs"], row["runs"], row["runs_unit"])
    where = ", ".join(filter(None, [seen, f"last in {latest['label']} ({latest['hash']})"]))
    daily = cost(row["cost_gpu_hours_per_day"], row["cost_basis"], row["cost_bound"], "a day")
    lost = f" It costs {daily}." if daily else ""
    return (
        f"{row['severity']}, {row['kind'].replace('_', ' ')}{since}, {where}."
        f" {view.said(row['evidence'])}{lost} {view.said(row['advice'])}"
    )


def _table(grid: Grid, only: set[str] | None = None) -> list[str]:
    """Return a grid as Markdown; of a headline only the rows of these runs."""
    places = [n for n, head in enumerate(grid.heads) if any(row[n].text for row in grid.rows)]
    heads = [grid.heads[n] for n in places]
    names = [f"{head.label} ({head.unit})" if head.unit else head.label for head in heads]
    lines = [f"| {' | '.join(_plain(name) for name in names)} |"]
    lines.append(f"|{'|'.join('-:' if head.numeric else '-' for head in heads)}|")
    lines += [
        f"| {' | '.join(_plain(row[n].text) for n in places)} |"
        for place, row in enumerate(grid.rows)
        if only is None or grid.keys[place] in only
    ]
    return lines


def _plain(text: str) -> str:
    """Return text that Markdown does not interpret, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(printable(text).split()))


def _mail_body(content: Content, shown: list[Picture]) -> str:
    safe = html.escape
    parts = [f"<h2>{safe(title(content))}</h2><p>{safe(about(content))}</p>"]
    for heading, items, _ in _problems(content):
        parts.append(f"<h3>{safe(heading)}</h3><ul>")
        for name, text in items:
            named = f"<b>{safe(name)}</b><br>" if name else ""
            parts.append(f"<li>{named}{safe(text)}</li>")
        parts.append("</ul>")
    parts += [
        f"<p><b>{safe(drawn.name.rpartition('-')[0])}</b><br>"
        f'<img src="cid:{safe(drawn.name)}" width="720" alt=""><br>{safe(drawn.kind.caption)}</p>'
        for drawn in shown
    ]
    parts.append("<p>The attached page has every figure.</p>")
    return f'<html><body style="font-family:sans-serif">{"".join(parts)}</body></html>'
