"""Prints what changed between two runs: whether they compare, the headline, then the details."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.terminal import words
from pipeline.terminal.changes import LEVEL
from pipeline.terminal.facts import Document
from pipeline.terminal.grid import Cell, Column
from pipeline.terminal.page import BAD, DIM, GOOD, WARN, Page
from pipeline.terminal.reading import Row
from pipeline.text import counted

_ROWS = 12
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
    found = [
        (row["stage"], name, figure)
        for row in document["stages"]
        for name, figure in row["figures"].items()
        if _tells(figure)
    ]
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
