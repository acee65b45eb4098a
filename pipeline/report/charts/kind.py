"""What a chart is: rows of a run, and one spec that draws the rows of any run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt

Drawing: TypeAlias = alt.Chart | alt.LayerChart

# Name of the data set in a spec; the rows are put in where it is drawn.
ROWS = alt.NamedData("rows")

# Ranks that a chart shows one by one; of more, stages stand for them, or a few speak.
CROWD = 32

# Rows of one chart of one run, by column.
Series: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of chart.

    Attributes:
        name: As in data and specs.
        section: Relation whose section it belongs to.
        caption: What it shows; said below it.
        sql: Rows of all runs of the page in the order they are drawn: `run_id`, then the columns
            of the series. `$points` is how many rows of a run are wanted at most.
        draw: The spec.
        shows: Whether a run's series says anything; a single bar does not.
        canvas: Drawn as pixels: for many marks, and for colours that are mixed.
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


def several(column: str) -> Callable[[Series], bool]:
    """True of series with more than one value in a column."""
    return lambda series: len(set(series[column])) > 1


def over_steps() -> alt.X:
    """Steps along the bottom."""
    return alt.X("step:Q", title="step", axis=alt.Axis(format="d", tickMinStep=1, grid=False))


def hint(name: str, title: str, number: str | None = None) -> alt.Tooltip:
    """A line of a tooltip; `number` is a d3 format, text without."""
    if number is None:
        return alt.Tooltip(f"{name}:N", title=title)
    return alt.Tooltip(f"{name}:Q", title=title, format=number)


def named_colors(colors: Mapping[str, str]) -> alt.Scale:
    """A scale that gives each name its colour."""
    return alt.Scale(domain=list(colors), range=list(colors.values()))
