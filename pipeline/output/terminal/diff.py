"""Prints what changed between two runs: whether they compare, the headline, then the details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from tracelake.base.text import counted
from tracelake.output.terminal import words
from tracelake.output.terminal.changes import LEVEL
from tracelake.output.terminal.facts import Document
from tracelake.output.terminal.grid import Cell, Column
from tracelake.output.terminal.page import BAD, DIM, GOOD, WARN, Page
from tracelake.output.terminal.reading import Row

_ROWS = 12
_BAR = 24
# Changes of less than this part of the step's share a row, and those under a thousandth of a step.
_SMALL = 0.05
_STYLES = {"worse": BAD, "better": GOOD, "same": DIM}
_CHANGE = (
    Column("before", right=True),
    Column("after", right=True),
    Column("change", right=True, spare=2),
    Column("relative", right=True),
    Column("verdict"),
)


def print_changes(document: Document, page: Page) -> None:
    """Prints the document of `read_changes`."""
    _head(document, page)
    _settings(document, page)
    _operations(document, page)
    _headline(document, page)
    _stages(document, page)
    _layers(document, page)
    _collectives(document, page)
    _ranks(document, page)
    _missing(document, page)
    page.end()


def _head(document: Document, page: Page) -> None:
    for side in ("before", "after"):
        run = document[side]
        page.prose(f"{run['run_id']}  {run['run_date'] or 'no date'}", first=f"{side:<6}  ")
    if document["swapped"]:
        page.prose("in order of their dates, not as typed", first="        ", style=WARN)
    if document["comparable"]:
        page.prose("of one configuration", first="        ", style=GOOD)
    for caveat in document["caveats"]:
        page.prose(caveat, first="        ", style=WARN)


def _settings(document: Document, page: Page) -> None:
    if not document["settings"]:
        return
    page.heading("Settings")
    rows = [
        [
            Cell(words.label(row["name"])),
            Cell(_setting(row["before"]) or page.glyphs.nothing),
            Cell(_setting(row["after"]) or page.glyphs.nothing),
        ]
        for row in document["settings"]
    ]
    page.table((Column("setting"), Column("before", least=12), Column("after", least=12)), rows)


def _operations(document: Document, page: Page) -> None:
    """The change of a step by operation as a waterfall; small changes share a row."""
    operations = document["operations"]
    if not operations:
        page.heading("Step by operation", "not both runs have operations with a pipeline window")
        return
    before, after = (sum(row[f"{side}_ms"] for row in operations) for side in ("before", "after"))
    change = words.difference("step_ms", after - before) or "no change"
    page.heading("Step by operation", f"where {change} of the median step went")
    *found, rest = operations
    least = max(_SMALL * abs(after - before), LEVEL / 10 * before)
    large = [row for row in found if abs(row["change_ms"]) >= least][:_ROWS]
    small = found[len(large) :]
    shown = [(row["op"], row["kind"], words.text(row["stage"]), row) for row in large]
    if small:
        shown.append((counted(len(small), "smaller change"), "", "", _sum(small)))
    shown.append(("rest of the medians", "", "", rest))
    axis = _Axis.over([row["change_ms"] for *_, row in shown])
    rows, done = [], 0.0
    for name, kind, stage, row in shown:
        change_ms = row["change_ms"]
        style = BAD if change_ms > 0 else GOOD
        rows.append(
            [
                Cell(name),
                Cell(kind),
                Cell(stage),
                Cell(words.milliseconds(row["before_ms"])),
                Cell(words.milliseconds(row["after_ms"])),
                Cell(words.difference("step_ms", change_ms), style),
                Cell(words.difference("step_ms", done + change_ms)),
                Cell(axis.bar(done, done + change_ms, page.glyphs.full), style),
            ]
        )
        done += change_ms
    columns = (
        Column("operation", least=16),
        Column("kind", spare=3),
        Column("stage", right=True),
        Column("before", right=True, spare=4),
        Column("after", right=True, spare=5),
        Column("change", right=True),
        Column("sum", right=True, spare=2),
        Column("", spare=1),
    )
    page.table(columns, rows)


def _sum(rows: Sequence[Row]) -> Row:
    return {name: sum(row[name] for row in rows) for name in ("before_ms", "after_ms", "change_ms")}


@dataclass(frozen=True, slots=True)
class _Axis:
    """The changes of a waterfall, from the lowest to the highest sum of them."""

    low: float
    high: float

    @classmethod
    def over(cls, changes: Sequence[float]) -> Self:
        sums = [0.0, *accumulate(changes)]
        return cls(min(sums), max(sums))

    def bar(self, start: float, end: float, glyph: str) -> str:
        """A change in its place; one of less than a cell has one."""
        cell = (self.high - self.low) / _BAR or 1.0
        first, last = sorted((start - self.low, end - self.low))
        left = min(_BAR - 1, round(first / cell))
        return " " * left + glyph * max(1, round(last / cell) - left)


def _headline(document: Document, page: Page) -> None:
    page.heading("Headline")
    changed = [row for row in document["headline"] if _tells(row)]
    page.table(
        [Column("figure"), *_CHANGE],
        [[Cell(words.label(row["figure"])), *_cells(row["figure"], row)] for row in changed],
    )
    level = [words.label(row["figure"]) for row in document["headline"] if not _tells(row)]
    if level:
        page.prose(f"no change of 1 % or more: {', '.join(level)}", style=DIM)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else words.text(value)


def _stages(document: Document, page: Page) -> None:
    """Figures of stages that changed, those of the most time first; shares come last."""
    found = [entry for entry in _per_stage(document["stages"]) if _tells(entry[2])]
    if not found:
        page.heading("Stages", _nothing(document["stages"], "stages"))
        return
    found.sort(key=lambda each: (each[1].endswith("_ratio"), -abs(each[2]["change"] or 0)))
    page.heading("Stages", _shown(found, "change"))
    rows = [
        [Cell(words.text(stage)), Cell(words.label(name)), *_cells(name, figure)]
        for stage, name, figure in found[:_ROWS]
    ]
    page.table([Column("stage", right=True), Column("figure"), *_CHANGE], rows)


def _per_stage(stages: Sequence[Row]) -> list[tuple[object, str, Row]]:
    """Stage, name and figure; a figure that is the same in all stages stands once, of `all`."""
    found: list[tuple[object, str, Row]] = []
    for name in stages[0]["figures"] if stages else ():
        figures = [(row["stage"], name, row["figures"][name]) for row in stages]
        alike = all(figure == figures[0][2] for _, _, figure in figures)
        found += [("all", *figures[0][1:])] if alike and len(figures) > 1 else figures
    return found


def _layers(document: Document, page: Page) -> None:
    found = [row for row in document["layers"] if _tells(row["figures"]["p50_ms"])]
    if not found:
        page.heading("Layers", _nothing(document["layers"], "layers"))
        return
    page.heading("Layers", _shown(found, "change"))
    rows = [
        [Cell(row["layer"]), *_cells("p50_ms", row["figures"]["p50_ms"])] for row in found[:_ROWS]
    ]
    page.table([Column("layer", least=8), *_CHANGE], rows)


def _collectives(document: Document, page: Page) -> None:
    found = [
        row
        for row in document["collectives"]
        if any(_tells(figure) for figure in row["figures"].values())
    ]
    if not found:
        page.heading("Communication", _nothing(document["collectives"], "communication"))
        return
    page.heading("Communication", _shown(found, "kind"))
    columns = (
        Column("collective"),
        Column("group"),
        Column("size", right=True),
        Column("dtype", spare=3),
        Column("calls", right=True, spare=2),
        Column("in all", right=True),
        Column("relative", right=True),
        Column("busbw", right=True, spare=1),
        Column("verdict"),
    )
    rows = []
    for row in found[:_ROWS]:
        figures = row["figures"]
        time = figures["time_ms"]
        verdict = _verdict(time if time["verdict"] else figures["time_p50_ms"], row["seen_in"])
        rows.append(
            [
                Cell(row["collective"] + (" async" if row["overlapped"] else "")),
                Cell(words.text(row["group_kind"])),
                Cell(words.size(row["size_bytes"])),
                Cell(words.text(row["dtype"])),
                Cell(_both("calls", figures["calls"], page)),
                Cell(_both("time_ms", time, page)),
                Cell(words.signed(time["change_ratio"]), verdict.style),
                Cell(_both("busbw_p50_gbps", figures["busbw_p50_gbps"], page)),
                verdict,
            ]
        )
    page.table(columns, rows)


def _ranks(document: Document, page: Page) -> None:
    found = document["ranks"]
    if not found:
        page.heading("Ranks", "none is slow in either")
        return
    page.heading("Ranks", _shown(found, "slow rank"))
    rows = [
        [
            Cell(str(row["rank"])),
            Cell(_said(row["verdict_before"])),
            Cell(_said(row["verdict_after"]), _slow(row)),
            Cell(words.factor(row["slowdown_before"])),
            Cell(words.factor(row["slowdown_after"])),
            Cell(words.milliseconds(row["time_lost_before_ms"])),
            Cell(words.milliseconds(row["time_lost_after_ms"])),
        ]
        for row in found[:_ROWS]
    ]
    columns = (
        Column("rank", right=True),
        Column("before"),
        Column("after"),
        Column("slowdown before", right=True, spare=1),
        Column("slowdown after", right=True, spare=1),
        Column("lost before", right=True, spare=2),
        Column("lost after", right=True, spare=2),
    )
    page.table(columns, rows)


def _missing(document: Document, page: Page) -> None:
    for side in ("before", "after"):
        if entries := document["not_computable"][f"{side}_only"]:
            page.heading(f"Only {side} lacks")
            page.prose("; ".join(entries), style=DIM)


def _cells(name: str, figure: Row) -> list[Cell]:
    """Before, after, change, relative change and verdict of a figure."""
    verdict = _verdict(figure)
    return [
        Cell(words.figure(name, figure["before"])),
        Cell(words.figure(name, figure["after"])),
        Cell(words.difference(name, figure["change"])),
        Cell(words.signed(figure["change_ratio"]), verdict.style),
        verdict,
    ]


def _verdict(figure: Row, seen_in: str = "both") -> Cell:
    if seen_in != "both":
        return Cell(f"only {seen_in}", WARN)
    if figure["before"] is None or figure["after"] is None:
        return Cell(f"only {'after' if figure['before'] is None else 'before'}", WARN)
    return Cell(figure["verdict"] or "", _STYLES.get(figure["verdict"] or "", ""))


def _both(name: str, figure: Row, page: Page) -> str:
    before, after = (words.figure(name, figure[side]) for side in ("before", "after"))
    if before == after:
        return before
    nothing = page.glyphs.nothing
    return f"{before or nothing} {page.glyphs.arrow} {after or nothing}"


def _tells(figure: Row) -> bool:
    """The figure changed, or only one run has it."""
    if figure["change"] is None:
        return figure["before"] is not None or figure["after"] is not None
    ratio = figure["change_ratio"]
    return bool(figure["change"]) and (ratio is None or abs(ratio) >= LEVEL)


def _nothing(rows: Sequence[Row], what: str) -> str:
    return "no change of 1 % or more" if rows else f"neither run has {what}"


def _shown(found: Sequence[object], what: str) -> str:
    if len(found) <= _ROWS:
        return counted(len(found), what)
    return f"the {_ROWS} largest of {counted(len(found), what)}; --format json has all"


def _said(verdict: str | None) -> str:
    return words.text(verdict).replace("_", " ")


def _slow(row: Row) -> str:
    return {"straggler": BAD, "suspect": WARN}.get(row["verdict_after"] or "", GOOD)
