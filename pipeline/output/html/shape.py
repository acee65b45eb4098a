"""Describe how the page shows a relation."""

from __future__ import annotations

from dataclasses import dataclass

from tracelake.schema.tables import Column
from tracelake.warehouse.headline import WINDOW_PARTS

# The steps of a run that figures use.
STEADY = "LEFT JOIN step_stats AS s ON s.run_id = b.run_id AND s.step = b.step"
OVER_STEPS = "Means over the run's steps, without warm-up."

# Layers from the input of the model to its output.
IN_MODEL = (
    "array_position(['embedding', 'block', 'other', 'head'], layer_kind), layer_index NULLS LAST,"
    " layer"
)

# Colours of the parts of a pipeline window.
PART_COLORS = dict(
    zip(
        WINDOW_PARTS,
        ("compute", "data", "comm", "recv", "send", "finalize", "c5", "gap"),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A relation as a section of a run.

    Attributes:
        columns: Names of those that are shown, in order, with commas. A column that is not one of
            the relation's has the doc of the relation it is joined from, `relation.column`.
        order: Order of the rows, in SQL.
        empty: Text if the run has no row: what the input lacks.
        headline: If no row has this figure, the section is one line with the reason.
        pick: Which rows to keep if there are too many, in SQL; `order` by default.
        rows: Maximum number of rows per run.
        source: A SELECT with the same column names that is read instead of the relation.
        title: Title of a base table; a model's is in its header.
        bar: Column drawn as bars: a share as itself, other values relative to the largest.
        mark: Share to compare the bar with.
        whole: The sum of `parts`, which are drawn as one bar after the first two columns.
        note: A caveat about the figures.
        own: Columns of `source` that no relation has; one without a value is left out.
        folded: The table is closed until someone opens it.
    """

    columns: str
    order: str
    empty: str
    headline: str | None = None
    pick: str | None = None
    rows: int = 64
    source: str | None = None
    title: str | None = None
    bar: str | None = None
    mark: str | None = None
    parts: tuple[str, ...] = ()
    whole: str | None = None
    note: str | None = None
    own: tuple[Column, ...] = ()
    folded: bool = False


def mean_of_steps(names: tuple[str, ...]) -> str:
    """Return columns of a SELECT from a relation `b` with `STEADY`: means, and a reason."""
    counts = "FILTER (NOT coalesce(s.warmup, false))"
    means = ", ".join(f"avg(b.{name}) {counts} AS {name}" for name in names)
    return f"""
        {means},
        CASE count(*) {counts} WHEN 0 THEN 'warmup_only' ELSE min(b.reason) {counts} END AS reason
    """
