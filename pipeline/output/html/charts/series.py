"""Read the rows of every chart of the page's runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import duckdb

from tracelake.base.text import printable
from tracelake.models.catalog import catalog
from tracelake.output.html.charts.kind import Kind, Series
from tracelake.output.html.charts.pipeline import KINDS as PIPELINE
from tracelake.output.html.charts.shares import KINDS as SHARES
from tracelake.output.html.charts.steps import KINDS as STEPS

# In the order in which a section shows them.
KINDS: tuple[Kind, ...] = (*PIPELINE, *STEPS, *SHARES)

# Maximum marks of all charts of a kind on a page, and of one chart, so that a page opens quickly.
_POINTS = 40_000
_AT_LEAST, _AT_MOST = 250, 6_000


def read_series(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]
) -> dict[str, dict[str, Series]]:
    """Return series by run and kind of chart; empty charts are left out.

    The page must be about these runs.
    """
    points = max(_AT_LEAST, min(_AT_MOST, _POINTS // max(1, len(run_ids))))
    con.execute(catalog().macros)
    found: dict[str, dict[str, Series]] = {run_id: {} for run_id in run_ids}
    read: dict[str, dict[str, Series]] = {}  # kinds that show the same rows share a query
    for kind in KINDS:
        if kind.sql not in read:
            read[kind.sql] = _by_run(con, kind.sql, points)
        for run_id, series in read[kind.sql].items():
            if kind.shows(series):
                found[run_id][kind.name] = series
    return found


def _by_run(con: duckdb.DuckDBPyConnection, sql: str, points: int) -> dict[str, Series]:
    answer = con.execute(sql.replace("$points", str(points)))
    _, *names = (column[0] for column in answer.description or ())
    by_run = defaultdict(list)
    for run_id, *values in answer.fetchall():
        by_run[run_id].append(values)
    return {
        run_id: dict(zip(names, map(_drawable, zip(*own, strict=True)), strict=True))
        for run_id, own in by_run.items()
    }


def _drawable(values: Sequence[Any]) -> list[Any]:
    """Return values for a chart: None for NaN and infinities, text without control characters."""
    kinds = set(map(type, values))
    if str in kinds:
        shown = {value: printable(value) if isinstance(value, str) else value for value in values}
        return [shown[value] for value in values]
    if float in kinds:
        return [None if value is None or not math.isfinite(value) else value for value in values]
    return list(values)
