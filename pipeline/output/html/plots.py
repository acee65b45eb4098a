"""Draw small plots as SVG in the page: they need no script and follow the page's colours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from itertools import accumulate
from typing import Any

from markupsafe import Markup, escape

from tracelake.base.figures import difference, factor, milliseconds, short

# A span of values under this part of their middle is drawn flat: noise is no mountain.
_LEAST_SPAN = 0.2
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 20
_TICKS = 4


def over_dates(
    nights: Sequence[Mapping[str, Any]],
    title: str,
    breaks: Sequence[tuple[datetime, str]],
    *,
    banded: bool,
    linked: Set[str],
    own: Set[str],
) -> Markup:
    """Return a plot of step times over dates, with the band of their baselines.

    Args:
        nights: A row per run, the earliest first: run_id, label, hash, run_date, verdict, ms, and
            what its baseline allows, from low to high; None without a baseline.
        breaks: Dates at which something began, with what.
        banded: Whether the band is drawn.
        linked: Runs that the page shows in full.
        own: Runs that belong to the incident.
    """
    width, height = 420, 130
    first, last = nights[0]["run_date"], nights[-1]["run_date"]
    span = (last - first).total_seconds() or 1.0
    low, high = level_reach([night["ms"] for night in nights])

    def x(date: datetime) -> float:
        inner = width - _LEFT - _RIGHT
        share = (date - first).total_seconds() / span if last > first else 0.5
        return _LEFT + inner * min(1.0, max(0.0, share))

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return _TOP + (height - _TOP - _BOTTOM) * (1 - share)

    parts = [_frame(low, high, width, y)]
    compared = [night for night in nights if banded and night["low"] is not None]
    if len(compared) > 1:
        upper = [(x(n["run_date"]), y(n["high"])) for n in compared]
        lower = [(x(n["run_date"]), y(n["low"])) for n in reversed(compared)]
        parts.append(f'<polygon class="band" points="{_points([*upper, *lower])}"/>')
    for date, what in breaks:
        if first <= date <= last:
            parts.append(
                f'<line class="break" x1="{x(date):.1f}" x2="{x(date):.1f}" y1="{_TOP}"'
                f' y2="{height - _BOTTOM}"><title>{escape(what)}</title></line>'
            )
    parts.append(
        f'<polyline points="{_points([(x(n["run_date"]), y(n["ms"])) for n in nights])}"/>'
    )
    for night in nights:
        run_id, date, marked = night["run_id"], night["run_date"], night["run_id"] in own
        said = f"{night['label']} ({night['hash']}), {date:%b %d, %Y}: {milliseconds(night['ms'])}"
        dot = (
            f'<circle class="{escape(night["verdict"])}{" own" if marked else ""}"'
            f' cx="{x(date):.1f}" cy="{y(night["ms"]):.1f}" r="{4 if marked else 2.5}">'
            f"<title>{escape(said)}</title></circle>"
        )
        parts.append(f'<a href="#run-{escape(run_id)}">{dot}</a>' if run_id in linked else dot)
    for date in _ticks([night["run_date"] for night in nights]):
        anchor = "start" if date == first and last > first else "end" if date == last else "middle"
        at, text = x(date) - (6 if anchor == "start" else 0), _day(date, first, last)
        parts.append(f'<text x="{at:.1f}" y="{height - 6}" text-anchor="{anchor}">{text}</text>')
    return _svg(parts, width, height, title, "dates")


def strip(
    rows: Sequence[str],
    nights: Sequence[str],
    slowdowns: Mapping[tuple[int, int], float],
    title: str,
    marked: frozenset[int] = frozenset(),
) -> Markup:
    """Return a heat strip, a row per rank and a column per night; even cells are left out."""
    tall = 12 if len(rows) <= 8 else max(2, 100 // len(rows))
    wide = min(48, max(8, 330 // len(nights)))
    left, width = 64, 64 + wide * len(nights) + 4
    height = tall * len(rows) + 22
    parts = [
        f'<rect class="even" x="{left}" y="2" width="{wide * len(nights)}"'
        f' height="{tall * len(rows)}"/>'
    ]
    for (row, night), slowdown in slowdowns.items():
        if slowdown >= 1.05:
            part = min(1.0, 0.25 + 0.75 * (slowdown - 1.05) / 0.45)
            parts.append(
                f'<rect class="hot" x="{left + wide * night + 1}" y="{2 + tall * row}"'
                f' width="{wide - 2}" height="{tall}" fill-opacity="{part:.2f}">'
                f"<title>{escape(rows[row])}, {escape(nights[night])}: {factor(slowdown)}</title>"
                "</rect>"
            )
    for place, name in enumerate(rows):
        if place in marked or tall >= 10:
            style = ' class="marked"' if place in marked else ""
            at = 2 + tall * place + tall / 2 + 4
            parts.append(
                f'<text{style} x="{left - 5}" y="{at:.1f}" text-anchor="end">{escape(name)}</text>'
            )
    bottom = height - 6
    parts.append(f'<text x="{left}" y="{bottom}">{escape(nights[0])}</text>')
    if len(nights) * wide > 90:
        parts.append(
            f'<text x="{left + wide * len(nights)}" y="{bottom}"'
            f' text-anchor="end">{escape(nights[-1])}</text>'
        )
    return _svg(parts, width, height, title, "strip")


def waterfall(
    before: float, changes: Sequence[tuple[str, float]], after: float, title: str
) -> Markup:
    """Return bars that lead from one time to another.

    Args:
        changes: What grew or shrank, by how many ms; they add up to the difference.
    """
    tall, left, right, width = 19, 160, 66, 460  # legible on a phone, too
    height = tall * (len(changes) + 2) + 4
    levels = [*accumulate((ms for _, ms in changes), initial=before)]
    low, high = min(*levels, after), max(*levels, after)
    # The axis does not begin at 0: the ends are drawn as lines, the changes as bars to scale.
    reach = max(high - low, 0.02 * abs(high)) or 1.0
    inner = width - left - right

    def x(value: float) -> float:
        return left + inner * (0.04 + 0.92 * (value - low) / reach)

    parts = []

    def row(place: int, name: str, start: float, end: float, style: str, said: str) -> None:
        a, b = sorted((x(start), x(end)))
        top = 2 + tall * place
        parts.append(
            f'<text x="{left - 6}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{style}" x="{a:.1f}" y="{top + 2}" width="{max(1.5, b - a):.1f}"'
            f' height="{tall - 5}"/>'
            f'<text x="{b + 5:.1f}" y="{top + 13}">{escape(said)}</text>'
        )

    row(0, "baseline", before, before, "whole", milliseconds(before))
    for place, (name, ms) in enumerate(changes, 1):
        at, style = levels[place - 1], "more" if ms > 0 else "less"
        row(place, name, at, at + ms, style, difference("step_ms", ms))
    row(len(changes) + 1, "this run", after, after, "whole", milliseconds(after))
    return _svg(parts, width, height, title, "waterfall")


def level_reach(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a scale on which noise looks as small as it is."""
    low, high = min(values), max(values)
    middle = sorted(values)[len(values) // 2]
    rest = _LEAST_SPAN * abs(middle) - (high - low)
    if rest > 0:
        low, high = max(0.0, low - rest / 2), high + rest / 2
    pad = 0.05 * (high - low) or 1.0
    return max(0.0, low - pad), high + pad


def _frame(low: float, high: float, width: int, y: Callable[[float], float]) -> str:
    lines = []
    for value in (low + 0.1 * (high - low), (low + high) / 2, low + 0.9 * (high - low)):
        at = y(value)
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    return "".join(lines)


def _short(value: float) -> str:
    """Return milliseconds for an axis: three digits, from ten seconds on in seconds."""
    return f"{short(value / 1000)} s" if value >= 10_000 else short(value)


def _ticks(dates: Sequence[datetime]) -> list[datetime]:
    """Return some of the dates that are not close to each other, the first and the last of them."""
    known = sorted(set(dates))
    if len(known) < 3:
        return known
    span = (known[-1] - known[0]) / (_TICKS - 1)
    chosen = [known[0]]
    for date in known[1:-1]:
        if date - chosen[-1] >= span * 0.9 and known[-1] - date >= span * 0.9:
            chosen.append(date)
    return [*chosen, known[-1]]


def _day(date: datetime, first: datetime, last: datetime) -> str:
    """Return a date as an axis shows it; the first has its year, dates of one day their time."""
    shown = f"{date:%b} {date.day}"
    if first.date() == last.date():
        return f"{shown}, {date:%H:%M}" if date == first else f"{date:%H:%M}"
    return f"{shown}, {date.year}" if date == first else shown


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(parts: Sequence[str], width: int, height: int, title: str, style: str) -> Markup:
    role = "group" if any(part.startswith("<a ") for part in parts) else "img"
    # The parts are built here from numbers and escaped text.
    return Markup(
        f'<svg class="plot {style}" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="{role}" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
