"""Print what a run would have taken."""

from __future__ import annotations

from typing import Any

from tracelake.base.figures import gpu_hours, lost, milliseconds, percent, slowdown
from tracelake.output.terminal.facts import why
from tracelake.output.terminal.page import DIM, Cell, Column, Page

_SHOWN = 8


def print_whatif(document: dict[str, Any], page: Page) -> None:
    """Print the document of `tracelake.warehouse.whatif.answer`."""
    page.line(Cell(document["run_id"], "bold"))
    if document["t_ms"] is None:
        page.prose(f"cannot be replayed: {why(document['reason']) or 'the run has no operations'}")
        return
    balanced = document["balanced_ms"]
    page.prose(
        f"step {milliseconds(document['t_ms'])}; with equal peers"
        f" {milliseconds(document['peer_ms'])} (S {slowdown(document['s_peer'])})"
        + (
            ""
            if balanced is None
            else f"; with balanced stages, too, {milliseconds(balanced)}"
            f" (S {slowdown(document['s_balance'])} of that)"
        )
    )
    hours = document["gpu_hours_lost"]
    share = lost(hours, "replay", document["reason"]) or gpu_hours(hours)
    page.prose(f"cause: {document['cause']}; {share} lost")
    if document["reason"] == "one_peer":
        page.prose("ranks have fewer than 3 peers: what they lost may be more", style=DIM)
    if question := document.get("question"):
        page.heading("What if", " and ".join(question["changes"]))
        hours, saved = question["gpu_hours_saved"], question["saved_ms"]
        page.prose(
            f"step {milliseconds(question['changed_ms'])}, {milliseconds(abs(saved))}"
            f" {'less' if saved >= 0 else 'more'} ({percent(abs(question['saved_ratio']))})"
            + _by_sample(question)
            + (
                ""
                if hours is None
                else f"; {gpu_hours(abs(hours))} {'less' if hours >= 0 else 'more'} over the traced"
                " steps"
            )
        )
    for name, key in (("Ranks", "rank"), ("Kinds of operation", "kind")):
        rows = [row for row in document[f"{key}s"] if row["lost_ms"] > 0][:_SHOWN]
        if rows:
            page.heading(name, "by what making them as fast as their peers would save")
            page.table(
                (
                    Column(key, right=key == "rank"),
                    Column("saves", "lost_ms"),
                    Column("S", lambda row: slowdown(row["slowdown_ratio"]), right=True),
                ),
                rows,
            )


def _by_sample(question: dict[str, Any]) -> str:
    """Return what becomes of a sample where a step has more or fewer of them."""
    if question["samples_ratio"] == 1:
        return ""
    saved = question["sample_saved_ratio"]
    return (
        f" for {question['samples_ratio']:.3g} times the samples: a sample takes"
        f" {percent(abs(saved))} {'less' if saved >= 0 else 'more'} time"
    )
