"""Define the timeline of a step: operations of each rank, on one clock."""

from __future__ import annotations

import altair as alt

from tracelake.output.html.charts.kind import CROWD, ROWS, Drawing, Kind, hint, named_colors
from tracelake.output.html.palette import var
from tracelake.output.html.reading import PAGE_RUNS

_KINDS = {
    "forward": var("compute"),
    "backward": var("backward"),
    "receive": var("recv"),
    "send": var("send"),
    "collective": var("comm"),
    "optimizer": var("finalize"),
    "data": var("data"),
    "other": var("other"),
}
# Typical number of kinds of short operations that share a slice of the timeline.
_MARKS_OF_SLICE = 3

# The step with the median time; all ranks, or the first of each stage and the slow ones. If there
# are more operations than points, time is cut into slices. The operations of a kind that are
# shorter than a slice and start in it become one mark of their total length: no time is lost or
# doubled.
_TIMELINE = f"""
    WITH steps AS (
        SELECT run_id, step FROM step_stats SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE step_ms IS NOT NULL
        QUALIFY row_number() OVER (
            PARTITION BY run_id ORDER BY warmup, outlier, step_ms, step
        ) = 1 + count(*) FILTER (NOT warmup AND NOT coalesce(outlier, false)) OVER (
            PARTITION BY run_id
        ) // 2
    ),
    seen AS (
        SELECT
            r.run_id, r.rank, r.stage, v.verdict,
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
    timed AS (
        SELECT
            o.run_id, o.step, o.rank, c.stage, c.verdict, o.op, o.micro_batch,
            aligned_ns(o.start_ns, k.offset_ns, k.drift, k.origin_ns) AS start_ns,
            aligned_ns(o.end_ns, k.offset_ns, k.drift, k.origin_ns) AS end_ns,
            CASE
                WHEN starts_with(o.op, 'forward') OR o.op = 'loss_func' THEN 'forward'
                WHEN starts_with(o.op, 'backward') THEN 'backward'
                WHEN o.category = 'p2p' AND starts_with(o.op, 'recv') THEN 'receive'
                WHEN o.category = 'p2p' THEN 'send'
                WHEN o.category IN ('collective', 'optimizer', 'data') THEN o.category
                ELSE 'other'
            END AS kind
        FROM ops AS o
        JOIN steps USING (run_id, step)
        JOIN chosen AS c USING (run_id, rank)
        LEFT JOIN clock_offsets AS k USING (run_id, rank)
        WHERE o.end_ns > o.start_ns
    ),
    spans AS (
        SELECT
            run_id, min(start_ns) AS first_ns, max(end_ns) - min(start_ns) AS span_ns,
            CASE
                WHEN count(*) > $points
                THEN {_MARKS_OF_SLICE} * count(DISTINCT rank) * (max(end_ns) - min(start_ns))
                    // $points
                ELSE 0
            END AS slice_ns
        FROM timed GROUP BY run_id
    ),
    sliced AS (
        SELECT
            *,
            CASE
                WHEN end_ns - start_ns < slice_ns THEN (start_ns - first_ns) // slice_ns
                ELSE -row_number() OVER (PARTITION BY run_id, rank ORDER BY start_ns, end_ns)
            END AS slice
        FROM timed JOIN spans USING (run_id)
    ),
    marks AS (
        SELECT
            run_id, rank, stage, kind, slice, any_value(step) AS step, count(*) AS n,
            CASE count(*) WHEN 1 THEN min(op) END AS op,
            CASE count(*) WHEN 1 THEN min(micro_batch) END AS batch,
            min(start_ns - first_ns) AS start_ns, sum(end_ns - start_ns)::BIGINT AS busy_ns,
            any_value(span_ns) AS span_ns
        FROM sliced GROUP BY run_id, rank, stage, kind, slice
    ),
    laid AS (
        SELECT *, min(start_ns) OVER beside + sum(busy_ns) OVER beside - busy_ns AS from_ns
        FROM marks
        WINDOW beside AS (
            PARTITION BY run_id, rank, slice ORDER BY start_ns, kind
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    )
    SELECT
        run_id,
        format(
            'rank {{}}{{}}', rank,
            CASE WHEN stage IS NULL THEN '' ELSE format(' · stage {{}}', stage) END
        ) AS label,
        step, kind, op, batch, n,
        round(from_ns / 1e6, 4) AS t0, round((from_ns + busy_ns) / 1e6, 4) AS t1,
        busy_ns > span_ns / 60 AS room
    FROM laid
    ORDER BY run_id, stage NULLS LAST, rank, t0, kind DESC  -- a fused receive hides its send
"""


def _draw_timeline() -> Drawing:
    base = alt.Chart(ROWS, height=alt.Step(20)).encode(
        alt.X(
            "t0:Q",
            title="ms since the step's first operation",
            scale=alt.Scale(nice=False, zero=False),
            axis=alt.Axis(tickCount=10),
        ),
        alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=150, ticks=False)),
    )
    zoom = alt.selection_interval(
        name="zoom",
        bind="scales",
        encodings=["x"],
        zoom="wheel![event.ctrlKey || event.metaKey || event.shiftKey]",
    )
    bars = (
        base.mark_bar(clip=True, height={"band": 0.86})
        .encode(
            alt.X2("t1:Q"),
            alt.Color("kind:N", scale=named_colors(_KINDS), legend=alt.Legend(title=None)),
            tooltip=[
                hint("label", "rank"),
                hint("kind", "kind"),
                hint("op", "operation"),
                hint("batch", "micro-batch"),
                hint("n", "operations", ","),
                hint("t0", "from (ms)", ",.3f"),
                hint("t1", "to (ms)", ",.3f"),
                hint("took", "took (ms)", ",.3f"),
            ],
        )
        .transform_calculate(took="datum.t1 - datum.t0")
        .add_params(zoom)
    )
    numbers = (
        base.mark_text(clip=True, align="left", dx=3, fontSize=10, color="#ffffff")
        .encode(alt.Text("batch:N"))
        .transform_filter(
            "datum.room && datum.batch !== null"
            " && (datum.kind === 'forward' || datum.kind === 'backward')"
        )
    )
    return alt.LayerChart(layer=[bars, numbers])


KINDS = (
    Kind(
        "timeline",
        "ops",
        "Operations of the step with the median time, on one clock. Blank is idle;"
        " numbers are micro-batches. Drag to move, wheel with Ctrl, ⌘ or Shift to zoom, double"
        " click to see all again.",
        _TIMELINE,
        _draw_timeline,
        canvas=True,
        wide=True,
    ),
)
