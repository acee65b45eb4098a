"""Define charts of the pipeline: operations of a step, parts of windows, bubbles with theory."""

from __future__ import annotations

from functools import partial

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
from tracelake.output.html.shapes import PART_COLORS, SHAPES
from tracelake.warehouse.headline import WINDOW_PARTS

_KINDS = {
    "forward": var("compute"),
    "backward": var("backward"),
    "receive": var("recv"),
    "send": var("send"),
    "collective": var("comm"),
    "optimizer": var("finalize"),
    "data": var("data"),
    "other": var("other"),
    "waiting": var("gap"),
}
# Typical number of kinds of short operations that share a slice of the timeline.
_MARKS_OF_SLICE = 3
PARTS = {label(part): var(color) for part, color in PART_COLORS.items()}
_IDLE = {"warmup": var("recv"), "steady": var("comm"), "cooldown": var("gap")}
_BASES = {"measured": var("c0"), "modelled": var("c3")}
_OVER_RANKS = ", ".join(
    f"sum({part} * steps) / sum(steps) AS {part}" for part in (*WINDOW_PARTS, "window_ms")
)
_AS_MAP = ", ".join(f"'{label(part)}': {part}" for part in WINDOW_PARTS)
_IN_ORDER = ", ".join(f"'{label(part)}'" for part in WINDOW_PARTS)


# The step with the median time, and where their operations are no more than the points also the
# fastest, the slowest and outliers; all ranks, or the first of each stage and the slow ones. A
# communication is cut into the part in which it waited for a peer and the rest; those inside
# operations are in a lane of their own. If there are more operations than points, time is cut into
# slices. The operations of a kind that are shorter than a slice and start in it become one mark of
# their total length: no time is lost or doubled.
@partial(
    Kind,
    "timeline",
    "ops",
    "Operations of one step on one clock; numbers are micro-batches, blank is idle. The thin"
    " lane is communication inside operations; grey is waiting for another rank.",
    f"""
    WITH placed AS (
        SELECT
            run_id, step, step_ms, coalesce(outlier, false) AS outlier,
            row_number() OVER (
                PARTITION BY run_id ORDER BY warmup, outlier, step_ms, step
            ) AS place,
            1 + count(CASE WHEN NOT warmup AND NOT coalesce(outlier, false) THEN 1 END) OVER (
                PARTITION BY run_id
            ) // 2 AS middle,
            row_number() OVER (PARTITION BY run_id ORDER BY warmup, step_ms, step) AS fast,
            row_number() OVER (PARTITION BY run_id ORDER BY warmup, step_ms DESC, step) AS slow,
            count(CASE WHEN NOT warmup THEN 1 END) OVER (PARTITION BY run_id) AS steady
        FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE step_ms IS NOT NULL
    ),
    picked AS (
        SELECT
            run_id, step, step_ms,
            CASE
                WHEN place = middle THEN 'median'
                WHEN steady > 1 AND fast = 1 THEN 'fastest'
                WHEN steady > 1 AND slow = 1 THEN 'slowest'
                WHEN outlier AND slow <= 4 THEN 'outlier'
            END AS pick
        FROM placed
        WHERE pick IS NOT NULL
    ),
    sizes AS (
        SELECT run_id, count(*) AS ops
        FROM ops SEMI JOIN picked USING (run_id, step)
        GROUP BY run_id
    ),
    steps AS (
        SELECT p.*
        FROM picked AS p JOIN sizes AS z USING (run_id)
        WHERE p.pick = 'median' OR z.ops <= $points
    ),
    seen AS (
        SELECT
            r.run_id, r.rank, r.stage, v.verdict, v.slowdown,
            count(*) OVER (PARTITION BY r.run_id) AS ranks,
            row_number() OVER (PARTITION BY r.run_id, r.stage ORDER BY r.rank) AS nth,
            row_number() OVER (
                PARTITION BY r.run_id
                ORDER BY
                    array_position(['straggler', 'suspect'], v.verdict), v.slowdown DESC, r.rank
            ) AS slowest
        FROM (
            SELECT run_id, rank, min(stage) AS stage
            FROM rank_bubbles SEMI JOIN {PAGE_RUNS} USING (run_id) GROUP BY ALL
        ) AS r
        LEFT JOIN straggler_ranks AS v USING (run_id, rank)
    ),
    chosen AS (
        SELECT * FROM seen
        WHERE ranks <= {CROWD} OR nth = 1
            OR verdict IN ('straggler', 'suspect') AND slowest <= {CROWD // 4}
    ),
    done AS (
        SELECT
            o.run_id, o.step, o.rank, o.seq, NULL AS sub_seq, false AS inside, o.op,
            o.micro_batch, o.start_ns, o.end_ns,
            CASE
                WHEN o.kind = 'loss' THEN 'forward'
                WHEN o.kind = 'recv' THEN 'receive'
                WHEN o.kind IN ('forward', 'backward', 'send') THEN o.kind
                WHEN o.category IN ('collective', 'optimizer', 'data') THEN o.category
                ELSE 'other'
            END AS kind
        FROM ops AS o SEMI JOIN steps USING (run_id, step)
        UNION ALL
        SELECT
            m.run_id, m.step, m.rank, m.seq, m.sub_seq, true,
            concat_ws(' ', m.collective, m.group_kind), m.micro_batch, m.start_ns, m.end_ns,
            'collective'
        FROM comms AS m SEMI JOIN steps USING (run_id, step)
        WHERE m.sub_seq IS NOT NULL
    ),
    waited AS (
        SELECT
            d.*, c.stage, c.verdict, c.slowdown, w.last_rank,
            round(1e6 * greatest(0, least(
                ns_to_ms(d.end_ns - d.start_ns),
                CASE
                    WHEN w.collective = 'send' OR w.overlapped THEN 0
                    WHEN w.time_basis = 'min' THEN coalesce(w.wait_ms, w.duration_ms - w.time_ms, 0)
                    ELSE coalesce(w.wait_ms, 0)
                END
            )))::BIGINT AS wait_ns,
            k.offset_ns, k.drift, k.origin_ns
        FROM done AS d
        JOIN chosen AS c USING (run_id, rank)
        LEFT JOIN clock_offsets AS k USING (run_id, rank)
        LEFT JOIN collective_calls AS w
            ON w.run_id = d.run_id AND w.rank = d.rank AND w.seq = d.seq
            AND w.sub_seq IS NOT DISTINCT FROM d.sub_seq
        WHERE d.end_ns > d.start_ns
    ),
    timed AS (
        SELECT
            * EXCLUDE (start_ns, end_ns, kind, last_rank),
            piece.kind AS kind, piece.last_rank AS last_rank,
            aligned_ns(piece.from_ns, offset_ns, drift, origin_ns) AS start_ns,
            aligned_ns(piece.to_ns, offset_ns, drift, origin_ns) AS end_ns
        FROM (
            SELECT *, unnest(list_filter([
                {{
                    'kind': 'waiting', 'last_rank': last_rank,
                    'from_ns': start_ns, 'to_ns': start_ns + wait_ns
                }},
                {{
                    'kind': kind, 'last_rank': NULL::INTEGER,
                    'from_ns': start_ns + wait_ns, 'to_ns': end_ns
                }}
            ], lambda p: p.to_ns > p.from_ns)) AS piece
            FROM (SELECT * REPLACE (coalesce(wait_ns, 0) AS wait_ns) FROM waited)
        )
    ),
    spans AS (
        SELECT
            run_id, step, min(start_ns) AS first_ns, max(end_ns) - min(start_ns) AS span_ns,
            CASE
                WHEN count(*) > $points
                THEN {_MARKS_OF_SLICE} * count(DISTINCT rank) * (max(end_ns) - min(start_ns))
                    // $points
                ELSE 0
            END AS slice_ns
        FROM timed GROUP BY run_id, step
    ),
    sliced AS (
        SELECT
            *,
            CASE
                WHEN end_ns - start_ns < slice_ns THEN (start_ns - first_ns) // slice_ns
                ELSE -row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns, end_ns)
            END AS slice
        FROM timed JOIN spans USING (run_id, step)
    ),
    marks AS (
        SELECT
            run_id, step, rank, stage, inside, kind, slice, count(*) AS n,
            CASE count(*) WHEN 1 THEN min(op) END AS op,
            CASE count(*) WHEN 1 THEN min(micro_batch) END AS batch,
            any_value(verdict) AS verdict, any_value(slowdown) AS slowdown,
            arg_max(last_rank, end_ns - start_ns) AS last,
            min(start_ns - first_ns) AS start_ns, sum(end_ns - start_ns)::BIGINT AS busy_ns,
            any_value(span_ns) AS span_ns
        FROM sliced GROUP BY run_id, step, rank, stage, inside, kind, slice
    ),
    laid AS (
        SELECT *, min(start_ns) OVER beside + sum(busy_ns) OVER beside - busy_ns AS from_ns
        FROM marks
        WINDOW beside AS (
            PARTITION BY run_id, step, rank, inside, slice ORDER BY start_ns, kind
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    )
    SELECT
        run_id,
        format(
            'rank {{}}{{}}', rank,
            CASE WHEN stage IS NULL THEN '' ELSE format(' · stage {{}}', stage) END
        ) AS label,
        rank, step, p.pick, round(p.step_ms, 3) AS step_ms, kind, op, batch, n, inside, last,
        CASE WHEN verdict IN ('straggler', 'suspect')
            THEN format('{{}} {{:.2f}} x', verdict, slowdown)
        END AS verdict,
        round(from_ns / 1e6, 4) AS t0, round((from_ns + busy_ns) / 1e6, 4) AS t1,
        busy_ns > span_ns / 60 AS room
    FROM laid JOIN picked AS p USING (run_id, step)
    -- A fused receive hides its send.
    ORDER BY run_id, pick <> 'median', step, stage NULLS LAST, rank, inside, t0, kind DESC
    """,
    canvas=True,
    wide=True,
)
def _timeline() -> Drawing:
    at = {
        "x": column(
            "t0:Q",
            title="ms since the step's first operation",
            scale={"nice": False, "zero": False},
            axis={"tickCount": 10},
        ),
        "y": labels(labelLimit=150),
    }
    # A mail and Markdown show it as it is; the page's script draws the same rows with a lane for
    # communication inside operations, hatches and arrows, and zooms.
    bars = at | {
        "x2": {"field": "t1"},
        "color": colored("kind", _KINDS),
        "size": column("inside:N", scale={"domain": [False, True], "range": [17, 6]}, legend=None),
        "tooltip": hints(
            "label|rank; kind; op|operation; batch|micro-batch; "
            "n|operations|,; t0|from (ms)|,.3f; t1|to (ms)|,.3f; "
            "took|took (ms)|,.3f"
        ),
    }
    median = "datum.pick === 'median'"
    numbered = (
        f"{median} && !datum.inside && datum.room && datum.batch !== null"
        " && (datum.kind === 'forward' || datum.kind === 'backward')"
    )
    took = {"calculate": "datum.t1 - datum.t0", "as": "took"}
    numbers = at | {"text": column("batch:N")}
    look = {"clip": True, "align": "left", "dx": 3, "fontSize": 10, "color": "#ffffff"}
    return rows_high(20) | layers(
        layer("bar", bars, {"filter": median}, took, clip=True),
        layer("text", numbers, {"filter": numbered}, **look),
    )


@partial(
    Kind,
    "windows",
    "rank_bubbles",
    "A bar is the pipeline window of a rank, or of a stage's mean rank where there are many."
    " Everything right of in op comm (communication inside operations) is bubble; the tick is"
    " where it would start if stages were equal.",
    f"""
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
    """,
    wide=True,
)
def _windows() -> Drawing:
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


@partial(
    Kind,
    "stages",
    "stage_bubbles",
    "Mean over steps; the line goes from the lowest to the highest rank, the tick is theory.",
    f"""
    SELECT
        run_id, basis, stage, round(bubble_ratio, 4) AS bubble, round(bubble_min_ratio, 4) AS low,
        round(bubble_max_ratio, 4) AS high, round(theory_bubble_ratio, 4) AS theory
    FROM ({SHAPES["stage_bubbles"].source}) SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE basis IN ('measured', 'modelled') AND bubble_ratio IS NOT NULL
    ORDER BY run_id, basis, stage
    """,
    shows=lambda series: len(series["bubble"]) > 1,
)
def _stages() -> Drawing:
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


@partial(
    Kind,
    "phases",
    "phase_bubbles",
    "Idle time of a stage's mean rank in each phase of the schedule.",
    f"""
    SELECT run_id, stage, phase, round(idle_ms, 4) AS ms, round(bubble_ratio, 4) AS bubble
    FROM ({SHAPES["phase_bubbles"].source}) SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE idle_ms IS NOT NULL
    ORDER BY run_id, stage, array_position({list(_IDLE)}, phase)
    """,
    shows=several("stage"),
)
def _phases() -> Drawing:
    channels = {
        "x": stages(),
        "y": milliseconds("idle (ms)"),
        "color": colored("phase", _IDLE),
        "tooltip": hints("stage; phase; ms|idle (ms)|,.2f; bubble|of the window|.1%"),
    }
    return layer("bar", channels)


KINDS = (_timeline, _windows, _stages, _phases)
