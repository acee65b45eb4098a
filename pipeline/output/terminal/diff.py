"""Print what changed between two runs: whether they compare, the headline, then the details."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from tracelake.base import figures
from tracelake.base.text import counted
from tracelake.output.terminal.changes import LEVEL
from tracelake.output.terminal.facts import Document
from tracelake.output.terminal.page import BAD, DIM, GOOD, WARN, Column, Page, plain
from tracelake.output.terminal.sections import collective
from tracelake.warehouse.values import Row

_ROWS = 12
_BAR = 24
# Changes of less than this part of the step's share a row, and those under a thousandth of a step.
_SMALL = 0.05
_STYLES = {"worse": BAD, "better": GOOD, "same": DIM}


def print_changes(document: Document, page: Page) -> None:
    """Print the document of `read_changes`."""
    _head(document, page)
    _settings(document, page)
    _operations(document, page)
    _headline(document, page)
    _stages(document, page)
    _named(page, "Layers", document["layers"], "p50_ms", Column("layer", least=8))
    if document["timers"]:
        _named(page, "Timers", document["timers"], "max_ms", Column("timer", "name", least=12))
    _collectives(document, page)
    _ranks(document, page)
    _missing(document, page)


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
    nothing = page.glyphs.nothing
    columns = (
        Column("setting", lambda row: figures.label(row["name"])),
        Column("before", lambda row: _setting(row["before"]) or nothing, least=12),
        Column("after", lambda row: _setting(row["after"]) or nothing, least=12),
    )
    page.table(columns, document["settings"])


def _operations(document: Document, page: Page) -> None:
    """Print the change of a step by operation as a waterfall; small changes share a row."""
    operations = document["operations"]
    if not operations:
        page.heading("Step by operation", "not both runs have operations with a pipeline window")
        return
    before, after = (sum(row[f"{side}_ms"] for row in operations) for side in ("before", "after"))
    change = figures.difference("step_ms", after - before) or "no change"
    page.heading("Step by operation", f"where {change} of the median step went")
    *found, rest = operations
    least = max(_SMALL * abs(after - before), LEVEL / 10 * before)
    large = [row for row in found if abs(row["change_ms"]) >= least][:_ROWS]
    small = found[len(large) :]
    others = [_sum(small)] if small else []
    rows = [*large, *others, {**rest, "op": "rest of the medians", "kind": "", "stage": None}]
    sums = [0.0, *accumulate(row["change_ms"] for row in rows)]
    low, cell = min(sums), (max(sums) - min(sums)) / _BAR or 1.0

    def bar(row: Row) -> str:
        """Return a change in its place; one of less than a cell has one."""
        first, last = sorted((row["sum_ms"] - row["change_ms"] - low, row["sum_ms"] - low))
        left: int = min(_BAR - 1, round(first / cell))
        right: int = round(last / cell)
        return " " * left + page.glyphs.full * max(1, right - left)

    def style(row: Row) -> str:
        return BAD if float(row["change_ms"]) > 0 else GOOD

    def signed(name: str) -> Callable[[Row], str]:
        return lambda row: figures.difference(name, row[name])

    columns = (
        Column("operation", "op", least=16),
        Column("kind", spare=3),
        Column("stage", right=True),
        Column("before", "before_ms", spare=4),
        Column("after", "after_ms", spare=5),
        Column("change", signed("change_ms"), style, right=True),
        Column("sum", signed("sum_ms"), right=True, spare=2),
        Column("", bar, style, spare=1),
    )
    page.table(columns, [{**row, "sum_ms": end} for row, end in zip(rows, sums[1:], strict=True)])


def _sum(rows: Sequence[Row]) -> Row:
    names = ("before_ms", "after_ms", "change_ms")
    return {
        "op": counted(len(rows), "smaller change"),
        "kind": "",
        "stage": None,
        **{name: sum(row[name] for row in rows) for name in names},
    }


def _headline(document: Document, page: Page) -> None:
    page.heading("Headline")
    changed = [row for row in document["headline"] if _tells(row)]
    page.table((_FIGURE, *_CHANGE), changed)
    level = [figures.label(row["figure"]) for row in document["headline"] if not _tells(row)]
    if level:
        page.prose(f"no change of 1 % or more: {', '.join(level)}", style=DIM)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else plain(value)


def _stages(document: Document, page: Page) -> None:
    """Print figures of stages that changed, those of the most time first; shares come last."""
    found = [row for row in _per_stage(document["stages"]) if _tells(row)]
    found.sort(key=lambda row: (row["figure"].endswith("_ratio"), -abs(row["change"] or 0)))
    page.heading("Stages", _shown(found, "change") or _nothing(document["stages"], "stages"))
    page.table((Column("stage", right=True), _FIGURE, *_CHANGE), found[:_ROWS])


def _per_stage(stages: Sequence[Row]) -> list[Row]:
    """Return figures of stages; one that is the same in all stages stands once, of `all`."""
    found: list[Row] = []
    for name in stages[0]["figures"] if stages else ():
        rows = [{"stage": row["stage"], "figure": name, **row["figures"][name]} for row in stages]
        alike = all(row["figures"][name] == stages[0]["figures"][name] for row in stages)
        found += [rows[0] | {"stage": "all"}] if alike and len(rows) > 1 else rows
    return found


def _named(page: Page, title: str, rows: Sequence[Row], figure: str, name: Column) -> None:
    """Print this figure of layers or timers where it changed."""
    found = [
        {**row, "figure": figure, **row["figures"][figure]}
        for row in rows
        if _tells(row["figures"][figure])
    ]
    page.heading(title, _shown(found, "change") or _nothing(rows, title.lower()))
    page.table((name, *_CHANGE), found[:_ROWS])


def _collectives(document: Document, page: Page) -> None:
    found = [
        row
        for row in document["collectives"]
        if any(_tells(figure) for figure in row["figures"].values())
    ]
    nothing = _nothing(document["collectives"], "communication")
    page.heading("Communication", _shown(found, "kind") or nothing)

    def verdict(row: Row) -> str:
        time = row["figures"]["time_ms"]
        if row["seen_in"] != "both":
            return f"only {row['seen_in']}"
        return _verdict(time if time["verdict"] else row["figures"]["time_p50_ms"])

    def both(name: str) -> Callable[[Row], str]:
        return lambda row: _both(name, row["figures"][name], page)

    def style(row: Row) -> str:
        return _style(verdict(row))

    columns = (
        Column("collective", collective, least=10),
        Column("group", "group_kind"),
        Column("size", "size_bytes"),
        Column("dtype", spare=4),
        Column("calls", both("calls"), right=True, spare=3),
        Column("in all", both("time_ms"), right=True),
        Column(
            "relative",
            lambda row: figures.signed(row["figures"]["time_ms"]["change_ratio"]),
            style,
            right=True,
            spare=1,
        ),
        Column("busbw", both("busbw_p50_gbps"), right=True, spare=2),
        Column("verdict", verdict, style),
    )
    page.table(columns, found[:_ROWS])


def _ranks(document: Document, page: Page) -> None:
    found = document["ranks"]
    page.heading("Ranks", _shown(found, "slow rank") or "none is slow in either")

    def slowdown(side: str) -> Column:
        name = f"slowdown_{side}"
        label = figures.label(name)
        return Column(label, lambda row: figures.factor(row[name]), right=True, spare=1)

    def style(row: Row) -> str:
        return {"straggler": BAD, "suspect": WARN}.get(row["verdict_after"] or "", GOOD)

    columns = (
        Column("rank", right=True),
        Column("before", lambda row: _said(row["verdict_before"])),
        Column("after", lambda row: _said(row["verdict_after"]), style),
        slowdown("before"),
        slowdown("after"),
        Column("lost before", "time_lost_before_ms", spare=2),
        Column("lost after", "time_lost_after_ms", spare=2),
    )
    page.table(columns, found[:_ROWS])


def _missing(document: Document, page: Page) -> None:
    for side in ("before", "after"):
        if entries := document["not_computable"][f"{side}_only"]:
            page.heading(f"Only {side} lacks")
            page.prose("; ".join(entries), style=DIM)


def _verdict(figure: Row) -> str:
    if figure["before"] is None or figure["after"] is None:
        return f"only {'after' if figure['before'] is None else 'before'}"
    return str(figure["verdict"] or "")


def _style(verdict: str) -> str:
    return WARN if verdict.startswith("only") else _STYLES.get(verdict, "")


def _side(name: str) -> Column:
    return Column(name, lambda row: figures.figure(row["figure"], row[name]), right=True)


_FIGURE = Column("figure", lambda row: figures.label(row["figure"]), least=12)
# Columns of rows with a figure's name, its values, and how they changed.
_CHANGE = (
    _side("before"),
    _side("after"),
    Column(
        "change",
        lambda row: figures.difference(row["figure"], row["change"]),
        right=True,
        spare=2,
    ),
    Column(
        "relative",
        lambda row: figures.signed(row["change_ratio"]),
        lambda row: _style(_verdict(row)),
        right=True,
    ),
    Column("verdict", _verdict, lambda row: _style(_verdict(row))),
)


def _both(name: str, figure: Row, page: Page) -> str:
    before, after = (figures.figure(name, figure[side]) for side in ("before", "after"))
    if before == after:
        return before
    nothing = page.glyphs.nothing
    return f"{before or nothing} {page.glyphs.arrow} {after or nothing}"


def _tells(figure: Row) -> bool:
    """Return whether the figure changed, or only one run has it."""
    if figure["change"] is None:
        return figure["before"] is not None or figure["after"] is not None
    ratio = figure["change_ratio"]
    return bool(figure["change"]) and (ratio is None or abs(ratio) >= LEVEL)


def _nothing(rows: Sequence[Row], what: str) -> str:
    return "no change of 1 % or more" if rows else f"neither run has {what}"


def _shown(found: Sequence[object], what: str) -> str:
    """Return how many rows a table has, and how many there are; nothing of no rows."""
    if len(found) <= _ROWS:
        return counted(len(found), what) if found else ""
    return f"the {_ROWS} largest of {counted(len(found), what)}; --format json has all"


def _said(verdict: str | None) -> str:
    return plain(verdict).replace("_", " ")
