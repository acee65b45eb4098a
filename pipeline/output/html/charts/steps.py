"""Define charts over steps (time, loss, slow ranks, layers), and over runs of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tracelake.output.html.charts.kind import (
    Drawing,
    Kind,
    colored,
    column,
    hints,
    layer,
    layers,
    over_steps,
    rows_high,
    several,
    where,
)
from tracelake.output.html.palette import var
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.output.html.shapes import IN_MODEL

# Maximum rows of a heat map; of more, neighbours share a row that shows the slowest of them.
_HEAT_ROWS = 64
_NAMED_LAYERS = 3
# How many steps share a point, so that a run has no more points than are drawn.
_MERGED = "1 + (count(*) OVER (PARTITION BY run_id) - 1) // $points AS merged"


def _values(name: str, title: str) -> Drawing:
    return column(f"{name}:Q", title=title, scale={"zero": False}, axis={"tickCount": 5})


def _level() -> Drawing:
    """Return a layer without marks that keeps the scale at 10 % about the median: noise is flat."""
    return layer(
        "point",
        {"y": column("value:Q")},
        {"aggregate": [{"op": "median", "field": "ms", "as": "middle"}]},
        {"calculate": "0.9 * datum.middle", "as": "low"},
        {"calculate": "1.1 * datum.middle", "as": "high"},
        {"fold": ["low", "high"]},
        opacity=0,
        tooltip=None,
    )


# A merged step shows its worst value.
@partial(
    Kind,
    "step_times",
    "step_stats",
    "Time of a step; outliers are red. Where steps are merged, the longest.",
    f"""
    WITH counted AS (
        SELECT *, {_MERGED}
        FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE NOT warmup AND step_ms IS NOT NULL
    )
    SELECT run_id, min(step) AS step, round(max(step_ms), 4) AS ms, max(step) AS last,
        coalesce(bool_or(outlier), false) AS outlier
    FROM counted GROUP BY run_id, step // merged ORDER BY run_id, step
    """,
    shows=several("step"),
)
def _step_times() -> Drawing:
    line = {
        "x": over_steps(),
        "y": _values("ms", "step (ms)"),
        "tooltip": hints("step; last|to step; ms|ms|,.2f"),
    }
    points = line | {
        "color": where("datum.outlier", var("bad"), var("c0")),
        "size": where("datum.outlier", 50, 14),
    }
    return layers(
        layer("line", line, color=var("c0")),
        layer("point", points, filled=True, opacity=1),
        _level(),
    )


@partial(
    Kind,
    "loss",
    "step_stats",
    "Loss of a step. Where steps are merged, the mean.",
    f"""
    WITH counted AS (
        SELECT *, {_MERGED}
        FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        -- A step without a loss is a gap in the line.
        QUALIFY count(loss) OVER (PARTITION BY run_id ORDER BY step) > 0
    )
    SELECT run_id, min(step) AS step, max(step) AS last, round(avg(loss), 6) AS loss
    FROM counted GROUP BY run_id, step // merged ORDER BY run_id, step
    """,
    shows=several("step"),
)
def _loss() -> Drawing:
    channels = {
        "x": over_steps(),
        "y": _values("loss", "loss"),
        "tooltip": hints("step; last|to step; loss|loss|.5f"),
    }
    return layer("line", channels, color=var("c1"), point={"size": 14, "color": var("c1")})


@partial(
    Kind,
    "slow_ranks",
    "straggler_ranks",
    "Slowdown of each rank in each step against peers that did the same work: red is slower. Of"
    " many ranks or steps, neighbours share a cell that shows the slowest.",
    f"""
    WITH verdicts AS (
        SELECT
            *,
            1 + (dense_rank() OVER (PARTITION BY run_id ORDER BY rank DESC) +
                dense_rank() OVER (PARTITION BY run_id ORDER BY rank) - 2) // {_HEAT_ROWS} AS ranks,
            dense_rank() OVER (PARTITION BY run_id ORDER BY rank) - 1 AS place,
            dense_rank() OVER (PARTITION BY run_id ORDER BY step) - 1 AS turn,
            1 + (dense_rank() OVER (PARTITION BY run_id ORDER BY step DESC) +
                dense_rank() OVER (PARTITION BY run_id ORDER BY step) - 2)
                // greatest(8, $points // {_HEAT_ROWS}) AS steps
        FROM straggler_steps SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE in_verdict AND slowdown IS NOT NULL
    )
    SELECT
        run_id,
        CASE any_value(ranks)
            WHEN 1 THEN format('rank {{}}', min(rank))
            ELSE format('ranks {{}} to {{}}', min(min(rank)) OVER same, max(max(rank)) OVER same)
        END AS label,
        min(step) AS step, max(step) AS last, round(max(slowdown), 4) AS slowdown,
        arg_max(rank, slowdown) AS rank, round(arg_max(excess_ms, slowdown), 4) AS ms,
        bool_or(slow) AS slow
    FROM verdicts
    GROUP BY run_id, place // ranks, turn // steps
    WINDOW same AS (PARTITION BY run_id, place // ranks)
    ORDER BY run_id, place // ranks, step
    """,
    shows=lambda series: several("step")(series) and any(series["slow"]),
    canvas=True,
    wide=True,
)
def _slow_ranks() -> Drawing:
    shown = hints(
        "label|row; rank|slowest rank; step; last|to step; "
        "slowdown|slowdown|.3f; ms|over its peers (ms)|,.2f"
    )
    legend = {"title": "slowdown", "format": ".1f"}
    # A rank faster than its peers is even: of two, the fast one is the peer of a slow one.
    colors = {1: "even", 1.35: "hot", 4: "hottest"}
    return _heat("label", "slowdown", colors, legend, shown)


def _heat(
    row: str,
    value: str,
    colors: Mapping[float, str],
    legend: Drawing,
    shown: list[Drawing],
) -> Drawing:
    """Return a heat map over steps; between the values of `colors` hues are blended."""
    hues = [var(name) for name in colors.values()]
    scale = {"domain": list(colors), "range": hues, "interpolate": "rgb", "clamp": True}
    overlap = {"labelOverlap": True}
    channels = {
        "x": column("step:O", title="step", axis=overlap | {"labelAngle": 0}),
        "y": column(f"{row}:N", sort=None, title=None, axis=overlap | {"ticks": False}),
        "color": column(f"{value}:Q", scale=scale, legend=legend),
        "tooltip": shown,
    }
    return rows_high(13) | layer("rect", channels)


_LAYERS = f"""
    WITH ranked AS (
        SELECT
            run_id, layer, row_number() OVER (
                PARTITION BY run_id ORDER BY cv_ratio DESC NULLS LAST, layer_index, layer
            ) AS varying,
            row_number() OVER (PARTITION BY run_id ORDER BY {IN_MODEL}) AS place
        FROM layer_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
    ),
    counted AS (
        SELECT l.*, r.varying, r.place,
            {_MERGED}
        FROM layer_steps AS l JOIN ranked AS r USING (run_id, layer)
        WHERE NOT l.warmup AND l.total_ms IS NOT NULL
    )
    SELECT run_id, layer, min(step) AS step, max(step) AS last, round(max(total_ms), 4) AS ms,
        round(arg_max(deviation_ratio, abs(deviation_ratio)), 4) AS deviation,
        CASE WHEN varying <= {_NAMED_LAYERS} THEN varying ELSE 0 END::VARCHAR AS named
    FROM counted GROUP BY run_id, layer, place, varying, step // merged
    ORDER BY run_id, place, step
"""


def _layer_hints() -> list[Drawing]:
    return hints("layer; step; last|to step; ms|ms|,.3f; deviation|vs. its median|+.1%")


@partial(
    Kind,
    "layers",
    "layer_stats",
    "Time of each layer in a step; the layers that vary most have colours.",
    _LAYERS,
    shows=several("step"),
)
def _layers() -> Drawing:
    colors = {"1": var("c1"), "2": var("c2"), "3": var("c0"), "0": var("other")}
    names = "{'0': 'others', '1': 'varies most', '2': 'second', '3': 'third'}[datum.label]"
    channels = {
        "x": over_steps(),
        "y": _values("ms", "layer (ms)"),
        "detail": column("layer:N"),
        "color": colored("named", colors, labelExpr=names),
        "tooltip": _layer_hints(),
    }
    return layer("line", channels, point={"size": 10})


@partial(
    Kind,
    "layer_heat",
    "layer_stats",
    "Deviation of each layer from its own median, step by step: red is longer.",
    _LAYERS,
    shows=several("step"),
    canvas=True,
)
def _layer_heat() -> Drawing:
    legend = {"title": "vs. its median", "format": "+.0%"}
    colors = {-0.2: "cold", 0: "even", 0.2: "hot"}
    return _heat("layer", "deviation", colors, legend, _layer_hints())


@partial(
    Kind,
    "history",
    "run_history",
    "Median step time of this run, the large point, and of up to 20 runs of its configuration"
    " before it; the dashed line is its baseline.",
    f"""
    WITH dated AS (
        SELECT
            run_id, config, run_date, verdict, step_p50_ms, step_p50_ms_baseline,
            row_number() OVER (PARTITION BY config ORDER BY run_date, run_id) AS place
        FROM run_history WHERE step_p50_ms IS NOT NULL AND run_date IS NOT NULL
    )
    SELECT
        p.run_id, h.run_id AS run, strftime(h.run_date, '%Y-%m-%dT%H:%M:%S') AS date, h.verdict,
        round(h.step_p50_ms, 4) AS ms, round(p.step_p50_ms_baseline, 4) AS baseline,
        h.run_id = p.run_id AS own
    FROM dated AS p
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    JOIN dated AS h ON h.config = p.config AND h.place BETWEEN p.place - 20 AND p.place
    ORDER BY p.run_id, h.place
    """,
    shows=several("run"),
)
def _history() -> Drawing:
    verdicts = {"regressed": var("bad"), "ok": var("c0"), "not_comparable": var("c5")}
    axis = {"grid": False, "labelOverlap": True, "format": "%b %d", "tickCount": "day"}
    dates = column("date:T", title=None, axis=axis)
    points = {
        "x": dates,
        "y": column("ms:Q"),
        "color": colored("verdict", verdicts),
        "size": where("datum.own", 140, 40),
        "tooltip": hints(
            "run; date; verdict; ms|median step (ms)|,.2f; baseline|baseline of this run (ms)|,.2f"
        ),
    }
    line = {"x": dates, "y": _values("ms", "median step (ms)")}
    return layers(
        layer("line", line, color=var("other")),
        layer("rule", {"y": column("baseline:Q")}, color=var("c1"), strokeDash=[4, 3]),
        layer("point", points, filled=True, opacity=1),
        _level(),
    )


KINDS = (_history, _step_times, _loss, _slow_ranks, _layers, _layer_heat)
