"""Line charts over steps as inline SVG, drawn offline; colours follow the page's theme."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl
import vl_convert

from pipeline.report.cells import Row
from pipeline.report.reading import PAGE_RUNS, Warehouse

# A chart costs tens of milliseconds and some 10 kB: these many runs get theirs.
CHARTED_RUNS = 20
# Points of a chart, over all its lines: steps are merged until they fit.
_POINTS = 2400
_NAMED_LAYERS = 3
_OTHERS = "others"
_COLORS = ("var(--c0)", "var(--c1)", "var(--c2)")
_WIDTH, _HEIGHT = 400, 130
_NAMESPACE = re.compile(r' xmlns(:\w+)?="[^"]*"')


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure: its SVG and what it shows."""

    svg: str
    caption: str


# Merged steps are named by the first of them and show the longest time and the mean loss.
_STEPS = f"""
    WITH counted AS (
        SELECT *, 1 + (count(*) OVER (PARTITION BY run_id) - 1) // {_POINTS // 4} AS merged
        FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE NOT warmup AND step_ms IS NOT NULL AND list_contains($1::VARCHAR[], run_id)
    )
    SELECT run_id, min(step) AS step, max(step_ms) AS step_ms, avg(loss) AS loss,
        coalesce(bool_or(outlier), false) AS outlier, any_value(merged) AS merged
    FROM counted GROUP BY run_id, step // merged ORDER BY run_id, step
"""
_LAYERS = f"""
    WITH counted AS (
        SELECT *, 1 + (count(*) OVER (PARTITION BY run_id) - 1) // {_POINTS} AS merged
        FROM layer_steps SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE NOT warmup AND list_contains($1::VARCHAR[], run_id)
    )
    SELECT c.run_id, c.layer, min(c.step) AS step, max(c.total_ms) AS total_ms,
        any_value(s.cv_ratio) AS cv_ratio, any_value(c.merged) AS merged
    FROM counted AS c
    JOIN layer_stats AS s ON s.run_id = c.run_id AND s.layer = c.layer
    GROUP BY c.run_id, c.layer, c.step // c.merged
    ORDER BY c.run_id, any_value(s.layer_index) NULLS LAST, c.layer, step
"""


def draw_charts(warehouse: Warehouse, run_ids: Sequence[str]) -> dict[str, dict[str, list[Chart]]]:
    """Charts of each run by the section they belong to; runs of a single step have none."""
    found: dict[str, dict[str, list[Chart]]] = {run_id: {} for run_id in run_ids}
    for name, (sql, draw) in _DRAWN.items():
        rows: dict[str, list[Row]] = {run_id: [] for run_id in run_ids}
        for row in warehouse.rows(sql, [list(run_ids)]):
            rows[row["run_id"]].append(row)
        for run_id, series in rows.items():
            if len({row["step"] for row in series}) > 1:
                found[run_id][name] = draw(series)
    return found


def _draw_steps(rows: Sequence[Row]) -> list[Chart]:
    names = ("step", "step_ms", "loss", "outlier")
    frame = pl.DataFrame({name: [row[name] for row in rows] for name in names})
    times = alt.Chart(frame).encode(_over_steps(), _values("step_ms", "step (ms)"))
    line = times.mark_line(color="var(--c0)")
    odd = times.transform_filter("datum.outlier").mark_point(color="var(--bad)", filled=True)
    marked = ", outliers marked" if frame["outlier"].any() else ""
    charts = [
        Chart(_svg(alt.LayerChart(layer=[line, odd])), f"Time of a step{marked}.{_merging(rows)}")
    ]
    losses = frame.drop_nulls("loss")
    if losses.height > 1:
        loss = alt.Chart(losses).encode(_over_steps(), _values("loss", "loss"))
        charts.append(
            Chart(
                _svg(loss.mark_line(color="var(--c1)")), f"Loss of a step.{_merging(rows, 'mean')}"
            )
        )
    return charts


def _draw_layers(rows: Sequence[Row]) -> list[Chart]:
    varying = {row["layer"]: row["cv_ratio"] or 0.0 for row in rows}
    named = sorted(varying, key=lambda layer: -varying[layer])[:_NAMED_LAYERS]
    # Lines are drawn in the order of the data: the named ones on top.
    ordered = sorted(rows, key=lambda row: row["layer"] in named)
    frame = pl.DataFrame(
        {
            **{name: [row[name] for row in ordered] for name in ("layer", "step", "total_ms")},
            "named": [row["layer"] if row["layer"] in named else _OTHERS for row in ordered],
        }
    )
    shown = [*named, _OTHERS] if len(varying) > len(named) else named
    colors = alt.Scale(domain=shown, range=[*_COLORS[: len(named)], "var(--other)"][: len(shown)])
    chart = alt.Chart(frame).encode(
        _over_steps(),
        _values("total_ms", "layer (ms)"),
        alt.Detail("layer:N"),
        alt.Color("named:N", scale=colors, legend=alt.Legend(title=None, orient="top")),
    )
    told = "Time of each layer in a step; the layers that vary most have colours."
    return [Chart(_svg(chart.mark_line()), f"{told}{_merging(rows)}")]


_DRAWN: Mapping[str, tuple[str, Callable[[Sequence[Row]], list[Chart]]]] = {
    "step_stats": (_STEPS, _draw_steps),
    "layer_stats": (_LAYERS, _draw_layers),
}
CHARTED_SECTIONS = frozenset(_DRAWN)


def _over_steps() -> alt.X:
    return alt.X("step:Q", title="step", axis=alt.Axis(format="d", tickMinStep=1, grid=False))


def _values(name: str, title: str) -> alt.Y:
    return alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))


def _merging(rows: Sequence[Row], how: str = "longest") -> str:
    merged = rows[0]["merged"]
    return f" Each point is the {how} of {merged} steps." if merged > 1 else ""


def _svg(chart: alt.Chart | alt.LayerChart) -> str:
    sized = chart.properties(width=_WIDTH, height=_HEIGHT, background="transparent")
    styled = (
        sized.configure(aria=False, font="sans-serif")
        .configure_axis(
            labelColor="currentColor",
            titleColor="currentColor",
            titleFontWeight="normal",
            domainColor="var(--line)",
            gridColor="var(--line)",
            tickColor="var(--line)",
            labelFontSize=12,
            titleFontSize=12,
        )
        .configure_legend(labelColor="currentColor", labelFontSize=12)
        .configure_line(strokeWidth=1.5)
        .configure_view(stroke="transparent")
    )
    svg = vl_convert.vegalite_to_svg(styled.to_dict(), allowed_base_urls=[])
    return _NAMESPACE.sub("", svg)
