"""Define charts of the pipeline: parts of each window, and bubbles with theory."""

from __future__ import annotations

from tracelake.base.figures import label
from tracelake.output.html.charts.kind import (
    CROWD,
    Drawing,
    Kind,
    colored,
    column,
    hints,
    labels,
    layer,
    layers,
    milliseconds,
    rows_high,
    several,
    stages,
)
from tracelake.output.html.palette import var
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.output.html.shapes import PART_COLORS, SHAPES, STEADY
from tracelake.warehouse.headline import WINDOW_PARTS

PARTS = {label(part): var(color) for part, color in PART_COLORS.items()}
_IDLE = {"warmup": var("recv"), "steady": var("comm"), "cooldown": var("gap")}
_BASES = {"measured": var("c0"), "modelled": var("c3")}
_OVER_RANKS = ", ".join(
    f"sum({part} * steps) / sum(steps) AS {part}" for part in (*WINDOW_PARTS, "window_ms")
)
_AS_MAP = ", ".join(f"'{label(part)}': {part}" for part in WINDOW_PARTS)
_IN_ORDER = ", ".join(f"'{label(part)}'" for part in WINDOW_PARTS)

_WINDOWS = f"""
    WITH sized AS (
        SELECT *, count(*) OVER (PARTITION BY run_id) > {CROWD} AS crowded
        FROM rank_summary SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE window_ms IS NOT NULL
    ),
    bars AS (
        SELECT
            run_id, stage, CASE WHEN NOT crowded THEN rank END AS rank,
            CASE
                WHEN crowded THEN format('stage {{}} ({{}} ranks)', stage, count(*))
                ELSE format(
                    'rank {{}} · stage {{}}', any_value(rank), coalesce(stage::VARCHAR, '?')
                )
            END AS label,
            {_OVER_RANKS},
            avg(bubble_ratio) AS bubble,
            any_value(theory_bubble_ratio) AS theory
        FROM sized
        GROUP BY run_id, stage, CASE WHEN NOT crowded THEN rank END, crowded
    ),
    pieces AS (
        SELECT *, unnest(map_entries(MAP {{{_AS_MAP}}})) AS piece
        FROM bars
    )
    SELECT
        run_id, label, piece.key AS part, round(piece.value, 4) AS ms,
        round(piece.value / window_ms, 4) AS share, round(bubble, 4) AS bubble,
        round(window_ms * (1 - theory), 4) AS ideal,
        list_position([{_IN_ORDER}], piece.key) AS place
    FROM pieces
    QUALIFY max(piece.value) OVER (PARTITION BY run_id, piece.key) > 0
    ORDER BY run_id, stage NULLS LAST, rank, place
"""


def _draw_windows() -> Drawing:
    bars = {
        "x": column("ms:Q", title="window (ms)", axis={"grid": False, "tickCount": 10}),
        "y": labels(labelLimit=150),
        "color": colored("part", PARTS),
        "order": column("place:Q"),
        "tooltip": hints(
            "label|rank; part; ms|ms|,.2f; share|of the window|.1%; bubble|bubble|.1%"
        ),
    }
    ideal = {"x": column("ideal:Q"), "y": bars["y"]}
    return rows_high(17) | layers(
        layer("bar", bars), layer("tick", ideal, color=var("ink"), thickness=2, size=15)
    )


_STAGES = f"""
    SELECT
        run_id, basis, stage, round(bubble_ratio, 4) AS bubble, round(bubble_min_ratio, 4) AS low,
        round(bubble_max_ratio, 4) AS high, round(theory_bubble_ratio, 4) AS theory
    FROM ({SHAPES["stage_bubbles"].source}) SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE basis IN ('measured', 'modelled') AND bubble_ratio IS NOT NULL
    ORDER BY run_id, basis, stage
"""


def _draw_stages() -> Drawing:
    beside = {"x": stages(), "xOffset": column("basis:N")}
    bars = beside | {
        "y": column("bubble:Q", title="bubble", axis={"format": "%"}, scale={"zero": True}),
        "color": colored("basis", _BASES),
        "tooltip": hints(
            "stage; basis; bubble|bubble|.1%; low|lowest rank|.1%; "
            "high|highest rank|.1%; theory|theory|.1%"
        ),
    }
    spread = beside | {"y": column("low:Q"), "y2": {"field": "high"}}
    theory = {"x": stages(), "y": column("theory:Q")}
    return layers(
        layer("bar", bars),
        layer("rule", spread, color=var("ink")),
        layer("tick", theory, color=var("c1"), thickness=2),
    )


_PHASES = f"""
    SELECT
        b.run_id, b.stage, b.phase, round(avg(b.idle_ms), 4) AS ms,
        round(avg(b.bubble_ratio), 4) AS bubble
    FROM phase_bubbles AS b SEMI JOIN {PAGE_RUNS} USING (run_id) {STEADY}
    WHERE NOT coalesce(s.warmup, false) AND b.idle_ms IS NOT NULL
    GROUP BY b.run_id, b.stage, b.phase
    ORDER BY b.run_id, b.stage, array_position({list(_IDLE)}, b.phase)
"""


def _draw_phases() -> Drawing:
    channels = {
        "x": stages(),
        "y": milliseconds("idle (ms)"),
        "color": colored("phase", _IDLE),
        "tooltip": hints("stage; phase; ms|idle (ms)|,.2f; bubble|of the window|.1%"),
    }
    return layer("bar", channels)


KINDS = (
    Kind(
        "windows",
        "rank_bubbles",
        "A bar is the pipeline window of a rank, or of a stage's mean rank where there are many."
        " Everything right of in op comm (communication inside operations) is bubble; the tick is"
        " where it would start if stages were equal.",
        _WINDOWS,
        _draw_windows,
        wide=True,
    ),
    Kind(
        "stages",
        "stage_bubbles",
        "Mean over steps; the line goes from the lowest to the highest rank, the tick is theory.",
        _STAGES,
        _draw_stages,
        shows=lambda series: len(series["bubble"]) > 1,
    ),
    Kind(
        "phases",
        "phase_bubbles",
        "Idle time of a stage's mean rank in each phase of the schedule.",
        _PHASES,
        _draw_phases,
        shows=several("stage"),
    ),
)
