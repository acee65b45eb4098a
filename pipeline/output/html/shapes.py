"""Define how the page shows each relation: rows, columns, order, and the text if it is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracelake.formats.ledger import Severity
from tracelake.output.html.links import OF_RATED, PAGE_RATES
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.schema.tables import Column
from tracelake.warehouse.headline import WINDOW_PARTS

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
        empty: Text if the run has no row: what the input lacks.
        order: Order of the rows, in SQL; by default that of the model's grain.
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
    empty: str
    order: str = ""
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


_WINDOW = (
    "bubble_ratio, theory_bubble_ratio, bubble_with_wait_ratio, bubble_over_ideal_ratio,"
    f" window_ms, {', '.join(WINDOW_PARTS)},"
    " p2p_recv_wait_ms, p2p_recv_transfer_ms, in_op_wait_ms, in_op_overlap_ms"
)
_COUNTED = "FILTER (NOT coalesce(s.warmup, false))"
_PHASE = ("bubble_ratio", "idle_ms", "busy_ms", "phase_ms")
_STAGE = (
    "bubble_ratio, bubble_min_ratio, bubble_max_ratio, theory_bubble_ratio,"
    " bubble_over_ideal_ratio, theory_over_ideal_ratio, covered_ratio"
)

# In the order of the page. Other models whose header has a title follow unchanged.
SHAPES: Mapping[str, Shape] = {
    "step_changes": Shape(
        columns="op, kind, stage, baseline_ms, run_ms, change_ms, share_ratio",
        order="op = 'rest', abs(change_ms) DESC, op, kind, stage NULLS LAST",
        rows=16,
        empty="Fewer than three runs of the baseline have operations with a pipeline window.",
        note="The bars lead from the median step of the baseline to that of the run.",
        folded=True,
    ),
    "ops": Shape(
        title="Pipeline timeline",
        columns="rank, stage, step, op, micro_batch, phase, duration_ns, sources.path, line",
        order="duration_ns DESC, rank, seq",
        # One value: of that DuckDB keeps the first rows, where it would sort millions by several.
        pick="(-duration_ns, rank, seq)",
        headline="duration_ns",
        rows=12,
        empty="The input has no operations of ranks.",
        note="The table has the longest operations and their lines in the input.",
        source="""
            SELECT
                o.run_id, o.rank, o.stage, o.step, o.seq, o.op, o.micro_batch, o.phase,
                o.duration_ns, concat_ws('/', s.path, s.member) AS path, o.line
            FROM ops AS o LEFT JOIN sources AS s USING (run_id, source_id)
        """,
    ),
    "rank_bubbles": Shape(
        columns=f"rank, stage, {_WINDOW}, reason",
        order="rank",
        pick="bubble_ratio DESC NULLS LAST, rank",
        headline="window_ms",
        parts=WINDOW_PARTS,
        whole="window_ms",
        empty="The input has no operations of ranks.",
        note=OVER_STEPS,
        source="FROM rank_summary",
    ),
    "stage_bubbles": Shape(
        columns=f"stage, basis, ranks, {_STAGE}, reason",
        order="basis, stage",
        headline="bubble_ratio",
        empty="The number of pipeline stages is unknown, and no operations of ranks show it.",
        bar="bubble_ratio",
        mark="theory_bubble_ratio",
        note=f"{OVER_STEPS} The line in a bar is theory.",
        # Theory is the same for every stage, and stands beside figures where there are any.
        source="""
            SELECT DISTINCT
                run_id, basis, ranks, bubble_ratio, bubble_min_ratio, bubble_max_ratio,
                theory_bubble_ratio, bubble_over_ideal_ratio, theory_over_ideal_ratio,
                covered_ratio,
                CASE WHEN NOT starts_with(basis, 'theory') THEN stage END AS stage,
                CASE WHEN starts_with(basis, 'theory') THEN coalesce(reason, window_reason)
                    ELSE reason
                END AS reason
            FROM stage_summary
            UNION ALL BY NAME
            SELECT
                run_id, 'modelled' AS basis, stage, modelled_bubble_ratio AS bubble_ratio,
                theory_bubble_ratio, theory_over_ideal_ratio
            FROM stage_summary
            WHERE basis = 'measured' AND modelled_bubble_ratio IS NOT NULL
            UNION ALL BY NAME
            SELECT DISTINCT
                run_id, basis, bubble_ratio, theory_bubble_ratio, bubble_over_ideal_ratio,
                theory_over_ideal_ratio, reason
            FROM stage_bubbles
            WHERE basis = 'theory_simulator'
        """,
    ),
    "phase_bubbles": Shape(
        columns=f"stage, phase, {', '.join(_PHASE)}, reason",
        order="stage, array_position(['warmup', 'steady', 'cooldown'], phase)",
        headline="bubble_ratio",
        empty="The input has no operations of ranks.",
        bar="bubble_ratio",
        note="Means over the stage's ranks and the run's steps, without warm-up.",
        source=f"""
            SELECT
                b.run_id, b.stage, b.phase,
                {", ".join(f"avg(b.{name}) {_COUNTED} AS {name}" for name in _PHASE)},
                CASE count(*) {_COUNTED} WHEN 0 THEN 'warmup_only'
                    ELSE min(b.reason) {_COUNTED}
                END AS reason
            FROM phase_bubbles AS b LEFT JOIN step_stats AS s USING (run_id, step)
            GROUP BY ALL
        """,
    ),
    "op_shares": Shape(
        columns="op, kind, stage, share_ms, share_ratio",
        order="share_ms DESC, op, kind, stage NULLS LAST",
        rows=16,
        empty="The input has no operations of ranks with a pipeline window.",
        bar="share_ratio",
    ),
    "straggler_ranks": Shape(
        columns="rank, stage, host, device, verdict, slowdown, slow_steps, culprit_steps, steps,"
        " time_lost_ms, in_op_wait_ms, reason, evidence",
        pick="array_position(['straggler', 'suspect', 'ok'], verdict) NULLS LAST,"
        " slowdown DESC NULLS LAST, rank",
        headline="slowdown",
        empty="The input has no operations of ranks.",
        bar="time_lost_ms",
    ),
    "whatif_runs": Shape(
        columns="steps, t_ms, peer_ms, balanced_ms, s_peer, s_peer_min, s_peer_max, s_balance,"
        " s_paper, cause, gpu_hours_lost, replay_error_ratio, delay_ratio, reason",
        headline="t_ms",
        empty="The input has no operations of ranks.",
        folded=True,
    ),
    "collective_bandwidth": Shape(
        columns="collective, group_kind, dtype, size_bytes, size_convention, group_size,"
        " overlapped, calls, coarse_calls, time_p50_ms, time_p95_ms, algbw_p50_gbps,"
        " busbw_p50_gbps, time_basis, reason",
        pick="calls * time_p50_ms DESC NULLS LAST, collective, group_kind, dtype, size_bytes,"
        " overlapped",
        headline="time_p50_ms",
        rows=40,
        empty="The input has no communication of ranks.",
        bar="busbw_p50_gbps",
        source=f"""
            SELECT b.*, s.skew_p50_ms, s.skew_p95_ms,
                CASE WHEN l.given THEN b.busbw_p50_gbps / l.gbps END AS of_rated_ratio
            FROM collective_bandwidth AS b
            LEFT JOIN {PAGE_RATES} AS l USING (run_id, group_kind)
            LEFT JOIN (
                SELECT
                    run_id, collective, group_kind, dtype, size_bytes, overlapped,
                    quantile_cont(skew_ms, 0.5) AS skew_p50_ms,
                    quantile_cont(skew_ms, 0.95) AS skew_p95_ms
                FROM collective_calls SEMI JOIN {PAGE_RUNS} USING (run_id)
                WHERE rank = lowest_rank
                GROUP BY ALL
            ) AS s USING (run_id, collective, group_kind, dtype, size_bytes, overlapped)
        """,
        own=(
            OF_RATED,
            Column(
                "skew_p50_ms", "DOUBLE", "Last arrival of a member after the first: median.", "ms"
            ),
            Column("skew_p95_ms", "DOUBLE", "The same of which 95 % of the calls have less.", "ms"),
        ),
    ),
    "step_stats": Shape(
        columns="step, step_ms, loss, busiest_stage, imbalance_ratio, warmup, outlier, reason,"
        " stages_reason",
        pick="outlier DESC NULLS LAST, step_ms DESC NULLS LAST, step",
        headline="step_ms",
        rows=32,
        empty="The input has no steps.",
        bar="step_ms",
    ),
    "run_history": Shape(
        columns="verdict, baseline_runs, step_p50_ms, step_p50_ms_baseline,"
        " step_p50_ms_change_ratio, step_p50_ms_allowed_ratio, bubble_ratio, bubble_ratio_baseline,"
        " bubble_ratio_change_ratio, busbw_gbps, busbw_gbps_baseline, busbw_gbps_change_ratio,"
        " stragglers, stragglers_baseline, regressions, reason",
        headline="compared",
        source="""
            SELECT *, nullif(verdict, 'not_comparable') AS compared FROM run_history
        """,
        empty="No figure of the run can be compared.",
    ),
    "stage_balance": Shape(
        columns="stage, micro_batch_ms, share_ratio, imbalance_ratio, busiest_steps, steps, reason",
        headline="micro_batch_ms",
        empty="The input has no stage times.",
        bar="micro_batch_ms",
    ),
    "stage_rebalance": Shape(
        columns="stage, micro_batch_ms, current_micro_batch_ms, first_layer, last_layer, layers,"
        " gain_ratio, covered_ratio, bottleneck_layer, reason",
        headline="micro_batch_ms",
        empty="The input has no layer times.",
        bar="micro_batch_ms",
    ),
    "layer_stages": Shape(
        columns="stage, layer, layer_kind, p50_ms, micro_batch_ms, stage_share_ratio,"
        " layer_share_ratio, reason",
        order=f"stage, {IN_MODEL}",
        pick="stage_share_ratio DESC NULLS LAST, stage, layer",
        headline="p50_ms",
        rows=128,
        empty="The input has no layer times.",
        bar="stage_share_ratio",
    ),
    "layer_stats": Shape(
        columns="layer, layer_kind, steps, mean_ms, p50_ms, p95_ms, max_ms, cv_ratio, worst_step,"
        " outlier_steps, trend, trend_ratio, reason",
        order=IN_MODEL,
        pick="mean_ms DESC NULLS LAST, layer",
        headline="mean_ms",
        rows=128,
        empty="The input has no layer times.",
        bar="mean_ms",
    ),
    "workload_comm": Shape(
        columns="pass, collective, group_kind, group_size, calls, bytes, compute_ms, needed_gbps,"
        " unprofiled_rows, reason",
        order="array_position(['forward', 'input_grad', 'weight_grad'], pass), collective,"
        " group_kind",
        pick="bytes DESC, pass, collective, group_kind",
        headline="calls",
        empty="The input is not a workload plan, or a plan without communication.",
        bar="needed_gbps",
    ),
    "plan_vs_measured": Shape(
        columns="plan_run_id, kind, pass, collective, group_kind, layer_kind, planned_bytes,"
        " measured_bytes, bytes_error_ratio, planned_compute_ms, measured_compute_ms,"
        " compute_error_ratio, reason",
        order="kind, pass, collective, group_kind, layer_kind",
        headline="plan_run_id",
        rows=48,
        empty="No plan in the lake has this run's configuration.",
    ),
    "clock_offsets": Shape(
        columns="clock, offset_ms, drift_ppm, uncertainty_ms, basis, links, reason",
        order="links NULLS LAST, clock",
        headline="offset_ms",
        empty="The input has no operations of ranks.",
        source="SELECT DISTINCT * EXCLUDE (rank) FROM clock_offsets",
        folded=True,
    ),
    "bandwidth_efficiency": Shape(
        columns="collective, group_kind, group_size, nodes, size_bytes, calls, achieved_gbps,"
        " attainable_gbps, efficiency_ratio, reason",
        headline="efficiency_ratio",
        empty="The input has no communication of ranks.",
        bar="efficiency_ratio",
    ),
    "rejects": Shape(
        title="Rejected lines",
        columns="sources.path, line, reason, text",
        order="path, line",
        rows=12,
        empty="No line was rejected.",
        source="""
            SELECT r.run_id, concat_ws('/', s.path, s.member) AS path, r.line, r.reason, r.text
            FROM rejects AS r LEFT JOIN sources AS s USING (run_id, source_id)
        """,
    ),
    "faults": Shape(
        title="Faults tolerated",
        columns="severity, name, count, sources.path, line, text",
        order="severity, name, path",
        pick=f"array_position({[*map(str, reversed(Severity))]}, severity), name, path",
        rows=24,
        empty="No faults.",
        source="""
            SELECT f.* EXCLUDE (source_id), concat_ws('/', s.path, s.member) AS path
            FROM faults AS f LEFT JOIN sources AS s USING (run_id, source_id)
        """,
        note="`tracelake formats NAME` explains each fault and what to do about it.",
    ),
    "sources": Shape(
        title="Files",
        columns="path, member, rank, host, device, bytes, lines, row_lines, context_lines,"
        " rejected, rows, duplicate_of",
        order="path, member, source_id",
        rows=24,
        empty="The run has no files.",
        folded=True,
    ),
}
