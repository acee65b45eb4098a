"""Define a kind of chart: rows of a run, and one spec that draws the rows of any run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# A part of a Vega-Lite spec.
Drawing: TypeAlias = dict[str, Any]
_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal", "T": "temporal"}

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
        draw: Its part of the spec: marks, or layers of them.
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


def column(name: str, **more: Any) -> Drawing:
    """Return a channel of a column with its type, like `ms:Q`: quantitative, nominal, ..."""
    field, kind = name.split(":")
    return {"field": field, "type": _TYPES[kind], **more}


def layer(mark: str, channels: Drawing, *transforms: Drawing, **look: Any) -> Drawing:
    """Return marks of one type, of the rows or of what transforms make of them."""
    drawn: Drawing = {"mark": {"type": mark, **look}, "encoding": channels}
    return drawn | {"transform": [*transforms]} if transforms else drawn


def layers(*parts: Drawing) -> Drawing:
    """Return layers in one plot, the first at the bottom."""
    return {"layer": [*parts]}


def rows_high(pixels: int) -> Drawing:
    """Return the height of a plot with so many pixels for each row of its y axis."""
    return {"height": {"step": pixels}}


def where(test: str, yes: Any, no: Any) -> Drawing:
    """Return a channel with one of two values."""
    return {"condition": [{"test": test, "value": yes}], "value": no}


def several(column: str) -> Callable[[Series], bool]:
    """Return whether a series has more than one value in a column."""
    return lambda series: len(set(series[column])) > 1


def over_steps() -> Drawing:
    """Return an x axis of steps."""
    # Vega's own choice has ticks between two steps where there are few.
    whole = "datum.value % 1 ? '' : datum.label"
    axis = {"format": "d", "tickMinStep": 1, "labelExpr": whole, "grid": False}
    return column("step:Q", title="step", axis=axis)


def hints(lines: str) -> list[Drawing]:
    """Return a tooltip of lines like `bytes|size (bytes)|,; group`: column, title, d3 format.

    A column without a format is text, and one without a title is its own.
    """
    return [_hint(*line.split("|")) for line in lines.split("; ")]


def _hint(name: str, title: str | None = None, number: str | None = None) -> Drawing:
    if number is None:
        return column(f"{name}:N", title=title or name)
    return column(f"{name}:Q", title=title, format=number)


def colored(name: str, colors: Mapping[str, str], **legend: Any) -> Drawing:
    """Return a channel that gives names their colours; `legend` is what a legend takes."""
    scale = {"domain": list(colors), "range": list(colors.values())}
    return column(f"{name}:N", scale=scale, legend={"title": None, **legend})


def stages() -> Drawing:
    """Return an x axis of stages."""
    return column("stage:O", title="stage", axis={"labelAngle": 0})


def milliseconds(title: str) -> Drawing:
    """Return a y axis of times."""
    return column("ms:Q", title=title, axis={"tickCount": 5})


def labels(**axis: Any) -> Drawing:
    """Return a y axis with a row per label, in the order of the rows."""
    return column("label:N", sort=None, title=None, axis={"ticks": False, **axis})
