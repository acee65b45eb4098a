"""Draw a step as it was, and below it as it would have been, as one SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np

from tracelake.base.figures import milliseconds
from tracelake.warehouse.whatif import Replayed

_WIDTH, _ROW, _LEFT, _TOP = 1000, 14, 70, 24
_RANKS = 64
_COLOURS = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "send_recv": "#b8b8b8",
    "other": "#54a24b",
    "comm": "#e45756",
}


def draw_step(replayed: Replayed, asked: str) -> str:
    """Return the picture; both parts have the same scale, and at most 64 ranks."""
    step = replayed.step
    ranks = np.unique(step.ranks)[:_RANKS].tolist()
    ends = [step.graph.ends(lengths) for lengths in (replayed.before, replayed.after)]
    longest = max(1, *(int(end.max()) for end in ends))
    height = _TOP + _ROW * len(ranks) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 10} {2 * height}"'
        ' font-family="sans-serif" font-size="11">'
    ]
    titles = (f"step {step.number} as it was", f"with {asked}")
    for number, (end, title) in enumerate(zip(ends, titles, strict=True)):
        top = number * height
        text = f"{title}: {milliseconds(end.max() / 1e6)}"
        parts.append(f'<text x="{_LEFT}" y="{top + 15}" font-weight="bold">{escape(text)}</text>')
        for row, rank in enumerate(ranks):
            y = top + _TOP + row * _ROW
            parts.append(f'<text x="4" y="{y + 10}">rank {rank}</text>')
            parts += _bars(replayed, end, rank, y, _WIDTH / longest)
    return "\n".join([*parts, "</svg>\n"])


def _bars(
    replayed: Replayed, ends: np.ndarray[tuple[int], np.dtype[np.int64]], rank: int, y: int,
    scale: float,
) -> Iterator[str]:  # fmt: skip
    """Yield a rank's operations; neighbours of one colour are one bar."""
    step = replayed.step
    starts = step.graph.starts(ends)
    chosen = np.flatnonzero((step.ranks == rank) & (ends > starts))
    chosen = chosen[np.argsort(starts[chosen], kind="stable")]
    open_at, open_to, colour = 0, 0, ""
    for node in chosen.tolist():
        start, end = int(starts[node]), int(ends[node])
        wanted = _colour(replayed.kinds[step.kinds[node]])
        if wanted != colour or start > open_to:
            if colour:
                yield _bar(open_at, open_to, y, scale, colour)
            open_at, colour = start, wanted
        open_to = max(open_to, end)
    if colour:
        yield _bar(open_at, open_to, y, scale, colour)


def _bar(start: int, end: int, y: int, scale: float, colour: str) -> str:
    return (
        f'<rect x="{_LEFT + start * scale:.1f}" y="{y}" width="{(end - start) * scale:.1f}"'
        f' height="{_ROW - 3}" fill="{colour}"/>'
    )


def _colour(kind: str) -> str:
    if kind.startswith("send_recv"):
        return _COLOURS["send_recv"]
    if ":" in kind:
        return _COLOURS["comm"]
    return _COLOURS.get(kind.removesuffix("_step"), _COLOURS["other"])
