"""Read what a run's step would have taken: divided into causes, and what fixing each rank saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from tracelake.base.figures import milliseconds, slowdown
from tracelake.models.describe import relation_columns
from tracelake.output.html.cells import Grid, Head, Row, cell
from tracelake.output.html.reading import PAGE_RUNS, grouped, page_rows

_RANKS = 8
# A rank that would save less than this part of the loss is not listed.
_LEAST_SHARE = 0.01
_STEPS = f"""
    SELECT
        w.run_id, l.hash, w.t_ms, w.peer_ms, w.balanced_ms, w.s_peer, w.s_balance, w.cause,
        w.reason
    FROM whatif_runs AS w
    JOIN run_list AS l USING (run_id)
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE w.t_ms IS NOT NULL
"""
_BY_RANK = f"""
    SELECT run_id, rank, stage, lost_ms, fixed_ratio
    FROM whatif_ranks
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE fixed_ratio >= {_LEAST_SHARE}
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY lost_ms DESC, rank) <= {_RANKS}
    ORDER BY run_id, lost_ms DESC, rank
"""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Tell what a step would have taken.

    Attributes:
        pieces: The step, divided into what remains and what each cause costs: class of the colour,
            width in percent, text.
        cause: Why it is slower than with equal peers.
        ranks: Ranks by what fixing them would save; None where none is named.
        command: Repeats the question, for the first of them.
        few_peers: The loss of a rank is at least what is said.
    """

    pieces: Sequence[tuple[str, float, str]]
    cause: str | None
    ranks: Grid | None
    command: str
    few_peers: bool


def read_whatif(con: duckdb.DuckDBPyConnection) -> dict[str, WhatIf]:
    """Return the answer of each run of the page that was replayed."""
    ranks = grouped(page_rows(con, _BY_RANK))
    return {
        row["run_id"]: _answer(row, ranks.get(row["run_id"], ())) for row in page_rows(con, _STEPS)
    }


def _answer(row: Row, ranks: Sequence[Row]) -> WhatIf:
    step, equal = row["t_ms"], row["peer_ms"]
    # Stages that cannot be balanced, or would take longer then, are no part of the loss.
    balanced = row["balanced_ms"]
    parts = [("whole", equal, "with equal peers")]
    if balanced is not None and balanced < equal:
        parts = [
            ("whole", balanced, "with equal peers and balanced stages"),
            ("uneven", equal - balanced, f"for uneven stages (S {slowdown(row['s_balance'])})"),
        ]
    parts.append(
        ("slower", max(0.0, step - equal), f"for slower peers (S {slowdown(row['s_peer'])})")
    )
    pieces = [
        (style, 100 * ms / step, f"{milliseconds(ms)} {text}")
        for style, ms, text in parts
        if ms > 0
    ]
    fix = f" --fix rank={ranks[0]['rank']}" if ranks else ""
    return WhatIf(
        pieces,
        row["cause"] and row["cause"].replace("_", " "),
        _table(ranks) if ranks else None,
        f"tracelake whatif {row['hash']}{fix}",
        row["reason"] == "one_peer",
    )


def _table(ranks: Sequence[Row]) -> Grid:
    columns = {column.name: column for column in relation_columns("whatif_ranks")}
    most = ranks[0]["lost_ms"]
    heads = [
        Head("rank", None, numeric=True),
        Head("stage", None, numeric=True),
        Head("fixing it saves", "ms of a step", numeric=True),
        Head("of the loss", "%", numeric=True),
    ]
    rows = []
    for row in ranks:
        names = ("rank", "stage", "lost_ms", "fixed_ratio")
        rank, stage, saved, share = (cell(columns[name], row[name]) for name in names)
        bar = round(100 * row["lost_ms"] / most, 1), None
        rows.append([rank, stage, replace(saved, bar=bar), share])
    return Grid(heads, rows)
