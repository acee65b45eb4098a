"""Define a kind of chart: rows of a run, and one spec that draws the rows of any run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tracelake.output.html.charts.late_altair import alt

Drawing: TypeAlias = "alt.Chart | alt.LayerChart"

# Name of the data set in a spec; the rows are added when it is drawn.
ROWS = "rows"

# A chart shows up to this many ranks; of more, it shows stages or a selection.
CROWD = 32

# Rows of one chart of one run, by column.
Series: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of chart.

    Attributes:
        name: Name in data and specs.
        section: Relation whose section it belongs to.
        caption: Text below the chart.
        sql: Rows of all runs of the page in the order they are drawn: `run_id`, then the columns
            of the series. `$points` is how many rows of a run are wanted at most.
        draw: The spec.
        shows: Whether a run's series is worth a chart; a single bar is not.
        canvas: Drawn as pixels: for many marks, and for interpolated colours.
        wide: Takes the whole width of the page.
    """

    name: str
    section: str
    caption: str
    sql: str
    draw: Callable[[], Drawing]
    shows: Callable[[Series], bool] = lambda _: True
    canvas: bool = False
    wide: bool = False


def plot(**properties: Any) -> alt.Chart:
    """Return a chart of the rows, without marks."""
    return alt.Chart(_rows(), **properties)


@functools.cache
def _rows() -> alt.NamedData:
    """Return the one data set, which layers of a chart share only if it is the same object."""
    return alt.NamedData(ROWS)


def several(column: str) -> Callable[[Series], bool]:
    """Return whether a series has more than one value in a column."""
    return lambda series: len(set(series[column])) > 1


def over_steps() -> alt.X:
    """Return an x axis of steps."""
    # Vega's own choice has ticks between two steps where there are few.
    whole = "datum.value % 1 ? '' : datum.label"
    axis = alt.Axis(format="d", tickMinStep=1, labelExpr=whole, grid=False)
    return alt.X("step:Q", title="step", axis=axis)


def hints(lines: str) -> list[alt.Tooltip]:
    """Return a tooltip of lines like `bytes|size (bytes)|,; group`: column, title, d3 format.

    A column without a format is text, and one without a title is its own.
    """
    return [_hint(*line.split("|")) for line in lines.split("; ")]


def _hint(name: str, title: str | None = None, number: str | None = None) -> alt.Tooltip:
    if number is None:
        return alt.Tooltip(f"{name}:N", title=title or name)
    return alt.Tooltip(f"{name}:Q", title=title, format=number)


def colored(name: str, colors: Mapping[str, str], **legend: Any) -> alt.Color:
    """Return a channel that gives names their colours; `legend` is what a legend takes."""
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(f"{name}:N", scale=scale, legend=alt.Legend(title=None, **legend))


def stages() -> alt.X:
    """Return an x axis of stages."""
    return alt.X("stage:O", title="stage", axis=alt.Axis(labelAngle=0))


def milliseconds(title: str) -> alt.Y:
    """Return a y axis of times."""
    return alt.Y("ms:Q", title=title, axis=alt.Axis(tickCount=5))


def labels(limit: int) -> alt.Y:
    """Return a y axis with a bar per label, in the order of the rows."""
    return alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=limit, ticks=False))
