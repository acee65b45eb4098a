"""Print what a run would have taken."""

from __future__ import annotations

from typing import Any

from tracelake.output.terminal.grid import Cell, Column
from tracelake.output.terminal.page import DIM, Page

_SHOWN = 8


def print_whatif(document: dict[str, Any], page: Page) -> None:
    """Print the document of `tracelake.warehouse.whatif.answer`."""
    page.line(Cell(document["run_id"], "bold"))
    if document["t_ms"] is None:
        page.prose(f"cannot be replayed: {document['reason'] or 'the run has no operations'}")
        page.end()
        return
    balanced = document["balanced_ms"]
    page.prose(
        f"step {document['t_ms']:.1f} ms; with equal peers {document['peer_ms']:.1f} ms"
        f" (S {document['s_peer']:.3f})"
        + (
            ""
            if balanced is None
            else f"; with balanced stages, too, {balanced:.1f} ms"
            f" (S {document['s_balance']:.3f} of that)"
        )
    )
    page.prose(f"cause: {document['cause']}; {document['gpu_hours_lost']:.3g} GPU hours lost")
    if document["reason"] == "one_peer":
        page.prose("ranks have fewer than 3 peers: what they lost is at least this", style=DIM)
    if question := document.get("question"):
        page.heading("What if", " and ".join(question["changes"]))
        hours, saved = question["gpu_hours_saved"], question["saved_ms"]
        page.prose(
            f"step {question['changed_ms']:.1f} ms, {abs(saved):.1f} ms"
            f" {'less' if saved >= 0 else 'more'} ({100 * abs(question['saved_ratio']):.1f} %)"
            + ("" if hours is None else f"; {abs(hours):.3g} GPU hours over the traced steps")
        )
    for name, key in (("Ranks", "rank"), ("Kinds of operation", "kind")):
        rows = [row for row in document[f"{key}s"] if row["lost_ms"] > 0][:_SHOWN]
        if rows:
            page.heading(name, "by what making them as fast as their peers would save")
            page.table(
                [Column(key, key == "rank"), Column("saves ms", True), Column("S", True)],
                [
                    [
                        Cell(str(row[key])),
                        Cell(f"{row['lost_ms']:.1f}"),
                        Cell(f"{row['slowdown_ratio']:.3f}"),
                    ]
                    for row in rows
                ],
            )
    page.end()
