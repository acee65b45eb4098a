"""How the page shows each relation: which rows and columns, in which order, and what if none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of a run's steps, those that figures are about.
_STEADY = "LEFT JOIN step_stats AS s ON s.run_id = b.run_id AND s.step = b.step"
_OVER_STEPS = "Means over the run's steps, warm-up left out."

_PARTS = (
    "compute_ms",
    "in_op_comm_ms",
    "p2p_recv_ms",
    "p2p_send_ms",
    "finalize_ms",
    "other_step_ms",
    "gap_ms",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A relation as a section of a run.

    Attributes:
        columns: Shown, in order; all of the relation by default. A column that is none of the
            relation's has the doc of the relation it is joined from, `relation.column`.
        order: Of the rows, in SQL.
        empty: Said where the run has no row: what the input lacks.
        headline: Where no row has this figure, the section is one line with the reason.
        pick: Which rows come first where there are too many, in SQL; `order` by default.
        rows: How many of a run are shown at most.
        source: What is read instead of the relation itself: a SELECT with its column names.
        title: Of a base table; a model's is in its header.
        bar: Column whose values are drawn as bars: a share as itself, else against the largest.
        mark: Share to compare the bar with.
        whole: What `parts` add up to; they are drawn as one bar, after the first two columns.
        note: What the reader must know about the figures.
    """

    columns: tuple[str, ...]
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


def _mean(names: tuple[str, ...]) -> str:
    counts = "FILTER (NOT coalesce(s.warmup, false))"
    means = ", ".join(f"avg(b.{name}) {counts} AS {name}" for name in names)
    return f"""
        {means},
        CASE count(*) {counts} WHEN 0 THEN 'warmup_only' ELSE min(b.reason) {counts} END AS reason
    """


_WINDOW = (
    "bubble_ratio",
    "theory_bubble_ratio",
    "bubble_with_wait_ratio",
    "bubble_over_ideal_ratio",
    "window_ms",
    *_PARTS,
    "in_op_wait_ms",
    "in_op_overlap_ms",
)
_STAGE = (
    "bubble_ratio",
    "bubble_min_ratio",
    "bubble_max_ratio",
    "theory_bubble_ratio",
    "bubble_over_ideal_ratio",
    "theory_over_ideal_ratio",
    "covered_ratio",
)

# In the order of the page. Other models whose header has a title follow, as they are.
SHAPES: Mapping[str, Shape] = {
    "straggler_ranks": Shape(
        columns=(
            "rank",
            "stage",
            "verdict",
            "slowdown",
            "slow_steps",
            "steps",
            "time_lost_ms",
            "in_op_wait_ms",
            "reason",
            "evidence",
        ),
        order="rank",
        pick="array_position(['straggler', 'suspect', 'ok'], verdict) NULLS LAST,"
        " slowdown DESC NULLS LAST, rank",
        headline="slowdown",
        empty="The input has no operations of ranks.",
        bar="time_lost_ms",
    ),
    "stage_bubbles": Shape(
        columns=("stage", "basis", "ranks", *_STAGE, "reason"),
        order="basis, stage",
        headline="bubble_ratio",
        empty="The number of pipeline stages is unknown, and no operations of ranks tell it.",
        bar="bubble_ratio",
        mark="theory_bubble_ratio",
        note=f"{_OVER_STEPS} The line in a bar is theory.",
        # Theory is the same for every stage, and stands beside figures where there are any.
        source=f"""
            SELECT * FROM (
                SELECT
                    b.run_id, b.basis, max(b.ranks) AS ranks, {_mean(_STAGE)},
                    CASE WHEN NOT starts_with(b.basis, 'theory') THEN b.stage END AS stage
                FROM stage_bubbles AS b
                {_STEADY}
                GROUP BY ALL
            )
            QUALIFY basis <> 'theory' OR NOT bool_or(
                basis IN ('measured', 'modelled') AND bubble_ratio IS NOT NULL
            ) OVER (PARTITION BY run_id)
        """,
    ),
    "rank_bubbles": Shape(
        columns=("rank", "stage", *_WINDOW, "reason"),
        order="rank",
        pick="bubble_ratio DESC NULLS LAST, rank",
        headline="window_ms",
        parts=_PARTS,
        whole="window_ms",
        empty="The input has no operations of ranks.",
        note=_OVER_STEPS,
        source=f"""
            SELECT b.run_id, b.rank, b.stage, {_mean(_WINDOW)}
            FROM rank_bubbles AS b
            {_STEADY}
            GROUP BY ALL
        """,
    ),
    "stage_balance": Shape(
        columns=(
            "stage",
            "micro_batch_ms",
            "share_ratio",
            "imbalance_ratio",
            "busiest_steps",
            "steps",
            "reason",
        ),
        order="stage",
        headline="micro_batch_ms",
        empty="The input has no times of stages.",
        bar="micro_batch_ms",
    ),
    "collective_bandwidth": Shape(
        columns=(
            "collective",
            "group_kind",
            "dtype",
            "size_bytes",
            "size_convention",
            "group_size",
            "overlapped",
            "calls",
            "coarse_calls",
            "time_p50_ms",
            "time_p95_ms",
            "algbw_p50_gbps",
            "busbw_p50_gbps",
            "time_basis",
            "reason",
        ),
        order="collective, group_kind, dtype, size_bytes, overlapped",
        pick="calls * time_p50_ms DESC NULLS LAST, collective, group_kind, dtype, size_bytes,"
        " overlapped",
        headline="time_p50_ms",
        rows=40,
        empty="The input has no communication of ranks.",
        bar="busbw_p50_gbps",
    ),
    "layer_stats": Shape(
        columns=(
            "layer",
            "steps",
            "mean_ms",
            "p50_ms",
            "p95_ms",
            "max_ms",
            "cv_ratio",
            "worst_step",
            "reason",
        ),
        order="layer_index NULLS LAST, layer",
        pick="mean_ms DESC NULLS LAST, layer",
        headline="mean_ms",
        rows=128,
        empty="The input has no times of layers.",
        bar="mean_ms",
    ),
    "step_stats": Shape(
        columns=(
            "step",
            "step_ms",
            "loss",
            "busiest_stage",
            "imbalance_ratio",
            "warmup",
            "outlier",
            "reason",
            "stages_reason",
        ),
        order="step",
        pick="outlier DESC NULLS LAST, step_ms DESC NULLS LAST, step",
        headline="step_ms",
        rows=32,
        empty="The input has no steps.",
        bar="step_ms",
    ),
    "workload_comm": Shape(
        columns=(
            "pass",
            "collective",
            "group_kind",
            "group_size",
            "calls",
            "bytes",
            "compute_ms",
            "needed_gbps",
            "unprofiled_rows",
            "reason",
        ),
        order="array_position(['forward', 'input_grad', 'weight_grad'], pass), collective,"
        " group_kind",
        pick="bytes DESC, pass, collective, group_kind",
        headline="calls",
        empty="The input is no workload plan, or a plan without communication.",
        bar="needed_gbps",
    ),
    "rejects": Shape(
        title="Lines not understood",
        columns=("sources.path", "line", "reason", "text"),
        order="path, line",
        rows=12,
        empty="Every line was understood.",
        source="""
            SELECT r.run_id, concat_ws('/', s.path, s.member) AS path, r.line, r.reason, r.text
            FROM rejects AS r LEFT JOIN sources AS s USING (run_id, source_id)
        """,
    ),
    "faults": Shape(
        title="Faults tolerated",
        columns=("severity", "name", "count", "sources.path", "line", "text"),
        order="severity, name, path",
        pick="array_position(['error', 'data_loss', 'notice', 'info'], severity), name, path",
        rows=24,
        empty="There were none.",
        source="""
            SELECT f.* EXCLUDE (source_id), concat_ws('/', s.path, s.member) AS path
            FROM faults AS f LEFT JOIN sources AS s USING (run_id, source_id)
        """,
        note="What a fault means and what to do about it: tracelake formats NAME.",
    ),
    "sources": Shape(
        title="Files",
        columns=(
            "path",
            "member",
            "rank",
            "host",
            "bytes",
            "lines",
            "row_lines",
            "context_lines",
            "rejected",
            "rows",
            "duplicate_of",
        ),
        order="path, member",
        rows=24,
        empty="The run has no files.",
    ),
}
