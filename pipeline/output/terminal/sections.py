"""Print sections of one run: pipeline, ranks, calls, timers and layers."""

from __future__ import annotations

from collections.abc import Sequence

from tracelake.base import figures
from tracelake.base.text import counted
from tracelake.output.terminal.facts import Document, why
from tracelake.output.terminal.page import BAD, DIM, GOOD, WARN, Cell, Column, Page, plain
from tracelake.warehouse.headline import WINDOW_PARTS
from tracelake.warehouse.values import Row

_PART_STYLES = ("green", "bright_green", "cyan", "yellow", "blue", "magenta", "dim", "dim")
_STAGES = 16
# A split that saves less than this share of a step is not shown.
_GAIN = 0.01


def print_sections(document: Document, page: Page) -> None:
    """Print what fills the middle of the page of a run: of tests their results alone."""
    if document["tests"]["largest"]:
        _tests(document, page)
        return
    _stages(document, page)
    _stragglers(document, page)
    _devices(document, page)
    _collectives(document, page)
    _timers(document, page)
    _layers(document, page)
    _split(document, page)
    _plan(document, page)
    _absent(document, page)


def _stages(document: Document, page: Page) -> None:
    stages = document["stages"]
    if not stages:
        return
    if all(stage["bubble_ratio"] is None for stage in stages):
        page.heading("Pipeline", why(stages[0]["reason"]))
        return
    basis = stages[0]["basis"]
    page.heading("Pipeline", _basis(stages[0], layered=bool(document["layers"]["slowest"])))
    shown = sorted(
        sorted(stages, key=lambda s: (-(s["bubble_ratio"] or 0), s["stage"]))[:_STAGES],
        key=lambda s: int(s["stage"]),
    )
    if basis.startswith("theory"):
        page.prose(f"bubble {figures.percent(stages[0]['bubble_ratio'])} in every stage")
        return
    width = page.bar_width
    for stage in shown:
        value = figures.percent(stage["bubble_ratio"])
        spread = ""
        if stage["ranks"] and stage["ranks"] > 1 and stage["bubble_min_ratio"] is not None:
            low, high = stage["bubble_min_ratio"], stage["bubble_max_ratio"]
            reach = f"{figures.number(low, '%')} to {figures.percent(high)}"
            spread = f"  {reach} in {counted(stage['ranks'], 'rank')}"
        label = f"  stage {stage['stage']:<3} "
        page.line(label, *_bar_of(stage, page, width), f" bubble {value:>7}", Cell(spread, DIM))
    theory = stages[0]["theory_bubble_ratio"]
    if theory is not None:
        bar = page.bar(1 - theory, width)
        page.line("  theory    ", Cell(bar, DIM), f" bubble {figures.percent(theory):>7}")
    if len(stages) > len(shown):
        page.prose(
            f"{len(shown)} of {len(stages)} stages, those with the largest bubbles", style=DIM
        )
    if stages[0].get("window_ms"):
        _legend(stages, page)


def _basis(stage: Row, *, layered: bool) -> str:
    if stage["basis"] == "measured":
        return "mean time of the ranks in the windows of the steps"
    if stage["basis"] == "modelled":
        source = "layer times" if layered else "forward and backward times"
        return f"modelled from {source}{_covered(stage)}"
    return "theory, not measured"


def _covered(stage: Row) -> str:
    covered = figures.percent(stage["covered_ratio"])
    return f"; the listed modules are {covered} of a step" if covered else ""


def _bar_of(stage: Row, page: Page, width: int) -> list[Cell]:
    """Return the bar of a stage: its parts if they are known, else busy and idle time."""
    if stage["window_ms"]:
        parts = [stage[name] for name in WINDOW_PARTS]
        return [Cell(text, _PART_STYLES[place]) for place, text in page.stack(parts, width)]
    idle = stage["bubble_ratio"]
    return [Cell("" if idle is None else page.bar(1 - idle, width))]


def _legend(stages: Sequence[Row], page: Page) -> None:
    pairs = [
        (Cell(page.glyphs.parts[place], _PART_STYLES[place]), figures.label(name))
        for place, name in enumerate(WINDOW_PARTS)
        if any(stage[name] for stage in stages)
    ]
    page.legend(pairs, indent=12)


def _stragglers(document: Document, page: Page) -> None:
    verdicts, worst = document["stragglers"]["verdicts"], document["stragglers"]["worst"]
    if not verdicts:
        return
    counts = (f"{figures.count(n)} {v.replace('_', ' ')}" for v, n in verdicts.items())
    page.heading("Ranks", ", ".join(counts))
    if not worst:
        return
    columns = (
        Column("rank", right=True),
        Column("stage", right=True, spare=2),
        Column("host", spare=1, least=12),
        Column("device", spare=3),
        Column("verdict", style=lambda row: BAD if row["verdict"] == "straggler" else WARN),
        Column("slowdown", lambda row: figures.factor(row["slowdown"]), right=True),
        Column("slow steps", lambda row: f"{row['slow_steps']} of {row['steps']}", right=True),
        Column("time lost", "time_lost_ms"),
        Column("reason", style=DIM, spare=1),
    )
    page.table(columns, worst)
    listed = verdicts.get("straggler", 0) + verdicts.get("suspect", 0)
    if listed > len(worst):
        page.prose(f"the worst {len(worst)} of {figures.count(listed)}", style=DIM)


def _devices(document: Document, page: Page) -> None:
    """Print what the devices did in a step, the idlest first."""
    columns = (
        Column("rank", right=True),
        Column("steps", lambda row: figures.count(row["steps"]), right=True, spare=3),
        Column("window", "window_ms"),
        Column("compute", "compute_ratio"),
        Column("communication", "exposed_comm_ratio"),
        Column("copies", "exposed_copy_ratio", spare=2),
        Column("idle", "idle_ratio", "bold"),
        Column("hidden communication", "hidden_comm_ratio", spare=1),
    )
    found = document["devices"]
    _worst(page, "Devices", found["idlest"], "idlest", found["ranks"], "rank", columns)


def _collectives(document: Document, page: Page) -> None:
    columns = (
        Column("collective", collective, least=10),
        Column("group", _group, least=6),
        Column("size", "size_bytes"),
        Column("dtype", spare=5),
        Column("calls", lambda row: figures.count(row["calls"]), right=True, spare=2),
        Column("total", "time_ms"),
        Column("median", "time_p50_ms", spare=1),
        Column("p95", "time_p95_ms", spare=4),
        Column("algbw", "algbw_p50_gbps", spare=6),
        Column("busbw", "busbw_p50_gbps", style="bold"),
        Column("reason", style=DIM, spare=3),
    )
    found = document["collectives"]
    timed = any(row["time_ms"] is not None for row in found["longest"][:1])
    order = "longest in total" if timed else "most frequent"
    _worst(page, "Communication", found["longest"], order, found["kinds"], "kind", columns)


def _timers(document: Document, page: Page) -> None:
    """Print the timers of a log that take most of a step."""
    columns = (
        Column("timer", "name", least=12),
        Column("median", "max_ms"),
        Column("of a step", "share_ratio"),
        Column("", lambda row: page.bar(min(row["share_ratio"], 1), 16).rstrip(page.glyphs.rest)),
        Column("records", lambda row: figures.count(row["records"]), right=True, spare=3),
        Column("spread", "spread_ms", spare=1),
        Column("slowest rank", "slowest_rank", right=True, spare=2),
    )
    found = document["timers"]
    _worst(page, "Timers", found["longest"], "longest", found["kinds"], "timer", columns)


def _absent(document: Document, page: Page) -> None:
    """Print in one line what the input does not have."""
    there = {
        "pipeline stages": document["stages"],
        "operations of ranks": document["stragglers"]["verdicts"] or document["devices"]["idlest"],
        "communication of ranks": document["collectives"]["longest"],
        "layer times": document["layers"]["slowest"],
    }
    absent = [name for name, rows in there.items() if not rows]
    if absent:
        page.heading("Not in the input", ", ".join(absent))


def _tests(document: Document, page: Page) -> None:
    """Print the results of bandwidth tests at the largest size of each kind."""
    found = document["tests"]
    shown, kinds = found["largest"], found["kinds"]
    title = "the largest size of each" if len(shown) == kinds else f"{len(shown)} of {kinds} kinds"
    page.heading("Bandwidth tests", title)
    columns = (
        Column("collective", lambda row: row["collective"] or "unknown"),
        Column("in place", lambda row: "yes" if row["placement"] == "in" else "no", spare=4),
        Column("ranks", right=True),
        Column("hosts", "nodes", right=True, spare=3),
        Column("sizes", right=True, spare=5),
        Column("largest", "size_bytes"),
        Column("dtype", spare=6),
        Column("time", "time_ms", spare=2),
        Column("algbw", "algbw_gbps", spare=7),
        Column("busbw", "busbw_gbps", style="bold"),
        Column(
            "wrong values", "wrong_values", style=lambda row: BAD if row["wrong_values"] else ""
        ),
        Column("of best pairs", "pair_ratio", spare=1),
        Column("pair", lambda row: plain(row["pair_verdict"]).replace("_", " ")),
    )
    page.table(columns, shown)


def collective(row: Row) -> str:
    """Return the name of a collective."""
    return f"{row['collective']}{' async' if row['overlapped'] else ''}"


def _group(row: Row) -> str:
    kind = plain(row["group_kind"])
    return kind if row["group_size"] is None else f"{kind} of {row['group_size']}"


def _layers(document: Document, page: Page) -> None:
    found = document["layers"]
    most = max((row["p50_ms"] or 0 for row in found["slowest"]), default=0) or 1

    def bar(row: Row) -> str:
        return page.bar((row["p50_ms"] or 0) / most, 16).rstrip(page.glyphs.rest)

    columns = (
        Column("layer", least=8),
        Column("kind", "layer_kind", spare=2),
        Column("median", "p50_ms"),
        Column("p95", "p95_ms"),
        Column("max", "max_ms", style=lambda row: WARN if row["outlier_steps"] else ""),
        Column("worst step", "worst_step", right=True, spare=1),
        Column("cv", "cv_ratio", spare=3),
        Column("", bar),
        Column("trend", _trend, lambda row: WARN if row["trend"] == "rising" else "", spare=1),
    )
    _worst(page, "Layers", found["slowest"], "slowest", found["layers"], "layer", columns)
    for row in found["drifting"]:
        page.prose(f"layer {row['layer']} is {_trend(row)} over the run", style=WARN)
    more = found["drifting_layers"] - len(found["drifting"])
    if more > 0:
        page.prose(f"... and {counted(more, 'layer')} more with a trend", style=WARN)


def _trend(row: Row) -> str:
    if row["trend"] in {"rising", "falling"}:
        return f"{row['trend']} {figures.signed(row['trend_ratio'])}"
    return plain(row["trend"])


def _split(document: Document, page: Page) -> None:
    """Print the best split of the layers, if it saves anything."""
    stages = document["split"]
    if not stages:
        return
    gain, title = stages[0]["gain_ratio"], "Split of the layers"
    if gain is None:
        page.heading(title, why(stages[0]["reason"]))
        return
    if gain < _GAIN:
        page.heading(title, f"the best split would save {figures.percent(gain)} of a step")
        return
    saved = f"{figures.percent(gain)} of a modelled step{_covered(stages[0])}"
    page.heading(title, f"a better split would save {saved}")

    def span(first: str, last: str) -> str:
        return first if first == last else f"{first} {page.glyphs.arrow} {last}"

    columns = (
        Column("stage", right=True),
        Column(
            "layers now",
            lambda row: span(row["current_first_layer"], row["current_last_layer"]),
            least=12,
        ),
        Column("micro-batch now", "current_micro_batch_ms"),
        Column("better", lambda row: span(row["first_layer"], row["last_layer"]), GOOD, least=12),
        Column("micro-batch", "micro_batch_ms", GOOD),
    )
    page.table(columns, stages[:_STAGES])


def _plan(document: Document, page: Page) -> None:
    columns = (
        Column("pass"),
        Column("collective", least=10),
        Column("group", _group),
        Column("calls", lambda row: figures.count(row["calls"]), right=True),
        Column("bytes", lambda row: figures.amount(row["bytes"]), right=True),
        Column("compute", "compute_ms", spare=1),
        Column("to hide it", "needed_gbps", style="bold"),
        Column("reason", style=DIM, spare=2),
    )
    found, title = document["plan"], "Planned communication"
    _worst(page, title, found["largest"], "largest", found["kinds"], "kind", columns)


def _worst(
    page: Page,
    title: str,
    rows: Sequence[Row],
    order: str,
    kinds: int,
    what: str,
    columns: Sequence[Column],
) -> None:
    """Print the worst rows of so many kinds, if there are any."""
    if rows:
        known = counted(kinds, what)
        page.heading(title, f"the {len(rows)} {order} of {known}" if len(rows) < kinds else known)
        page.table(columns, rows)
