"""Print sections of one run: pipeline, ranks, calls and layers."""

from __future__ import annotations

from collections.abc import Sequence

from tracelake.base.text import counted
from tracelake.output.terminal import words
from tracelake.output.terminal.facts import PARTS, Document
from tracelake.output.terminal.grid import Cell, Column
from tracelake.output.terminal.page import BAD, DIM, GOOD, WARN, Page
from tracelake.output.terminal.reading import Row

_PART_STYLES = ("green", "bright_green", "cyan", "yellow", "blue", "magenta", "dim", "dim")
_STAGES = 16
# A split that saves less than this share of a step is not shown.
_GAIN = 0.01


def print_stages(document: Document, page: Page) -> None:
    """Print busy and idle time of the stages as bars, with theory."""
    stages = document["stages"]
    if not any(stage["bubble_ratio"] is not None for stage in stages):
        why = words.why(stages[0]["reason"]) if stages else "the number of stages is unknown"
        page.heading("Pipeline", why)
        return
    basis = stages[0]["basis"]
    page.heading("Pipeline", _basis(stages[0]))
    shown = sorted(
        sorted(stages, key=lambda s: (-(s["bubble_ratio"] or 0), s["stage"]))[:_STAGES],
        key=lambda s: int(s["stage"]),
    )
    if basis.startswith("theory"):
        page.prose(f"bubble {words.percent(stages[0]['bubble_ratio'])} in every stage")
        return
    width = page.bar_width
    for stage in shown:
        value = words.percent(stage["bubble_ratio"])
        spread = ""
        if stage["ranks"] and stage["ranks"] > 1 and stage["bubble_min_ratio"] is not None:
            low, high = stage["bubble_min_ratio"], stage["bubble_max_ratio"]
            spread = f"  {100 * low:.1f} to {words.percent(high)} in {stage['ranks']:,} ranks"
        label = f"  stage {stage['stage']:<3} "
        page.line(label, *_bar_of(stage, page, width), f" bubble {value:>7}", Cell(spread, DIM))
    theory = stages[0]["theory_bubble_ratio"]
    if theory is not None:
        bar = page.bar(1 - theory, width)
        page.line("  theory    ", Cell(bar, DIM), f" bubble {words.percent(theory):>7}")
    if len(stages) > len(shown):
        page.prose(
            f"{len(shown)} of {len(stages)} stages, those with the largest bubbles", style=DIM
        )
    if stages[0].get("window_ms"):
        _legend(stages, page)


def _basis(stage: Row) -> str:
    if stage["basis"] == "measured":
        return "mean time of the ranks in the windows of the steps"
    if stage["basis"] == "modelled":
        covered = words.percent(stage["covered_ratio"])
        part = f"; the listed modules are {covered} of a step" if covered else ""
        return f"modelled from layer times{part}"
    return "theory, not measured"


def _bar_of(stage: Row, page: Page, width: int) -> list[Cell]:
    """Return the bar of a stage: its parts if they are known, else busy and idle time."""
    if stage["window_ms"]:
        parts = [stage[f"{name}_ms"] for name in PARTS]
        return [Cell(text, _PART_STYLES[place]) for place, text in page.stack(parts, width)]
    idle = stage["bubble_ratio"]
    return [Cell("" if idle is None else page.bar(1 - idle, width))]


def _legend(stages: Sequence[Row], page: Page) -> None:
    """Print what the cells of the bars mean."""
    pairs = [
        (Cell(page.glyphs.parts[place], _PART_STYLES[place]), words.label(name))
        for place, name in enumerate(PARTS)
        if any(stage[f"{name}_ms"] for stage in stages)
    ]
    page.legend(pairs, indent=12)


def print_stragglers(document: Document, page: Page) -> None:
    """Print verdicts on the ranks, and the slow ones."""
    verdicts, worst = document["stragglers"]["verdicts"], document["stragglers"]["worst"]
    if not verdicts:
        page.heading("Ranks", "the input has no operations of ranks")
        return
    counts = ", ".join(f"{n:,} {v.replace('_', ' ')}" for v, n in verdicts.items())
    page.heading("Ranks", counts)
    if not worst:
        return
    columns = (
        Column("rank", right=True),
        Column("stage", right=True, spare=2),
        Column("host", spare=1, least=12),
        Column("device", spare=3),
        Column("verdict"),
        Column("slowdown", right=True),
        Column("slow steps", right=True),
        Column("time lost", right=True),
        Column("reason", spare=1),
    )
    rows = [
        [
            Cell(str(row["rank"])),
            Cell(words.text(row["stage"])),
            Cell(words.text(row["host"])),
            Cell(words.text(row["device"])),
            Cell(row["verdict"], BAD if row["verdict"] == "straggler" else WARN),
            Cell(words.factor(row["slowdown"])),
            Cell(f"{row['slow_steps']} of {row['steps']}"),
            Cell(words.milliseconds(row["time_lost_ms"])),
            Cell(words.text(row["reason"]), DIM),
        ]
        for row in worst
    ]
    page.table(columns, rows)
    listed = verdicts.get("straggler", 0) + verdicts.get("suspect", 0)
    if listed > len(worst):
        page.prose(f"the worst {len(worst)} of {listed:,}", style=DIM)


def print_collectives(document: Document, page: Page) -> None:
    """Print the communication that took longest."""
    found = document["collectives"]
    if not found["longest"]:
        page.heading("Communication", "the input has no communication of ranks")
        return
    timed = found["longest"][0]["time_ms"] is not None
    order = "longest in total" if timed else "most frequent"
    page.heading("Communication", _first(found["longest"], found["kinds"], "kind", order))
    columns = (
        Column("collective"),
        Column("group"),
        Column("size", right=True),
        Column("dtype", spare=5),
        Column("calls", right=True, spare=2),
        Column("total", right=True),
        Column("median", right=True, spare=1),
        Column("p95", right=True, spare=4),
        Column("algbw", right=True, spare=6),
        Column("busbw", right=True),
        Column("reason", spare=3),
    )
    rows = [
        [
            Cell(row["collective"] + (" async" if row["overlapped"] else "")),
            Cell(_group(row)),
            Cell(words.size(row["size_bytes"])),
            Cell(words.text(row["dtype"])),
            Cell(words.count(row["calls"])),
            Cell(words.milliseconds(row["time_ms"])),
            Cell(words.milliseconds(row["time_p50_ms"])),
            Cell(words.milliseconds(row["time_p95_ms"])),
            Cell(words.speed(row["algbw_p50_gbps"])),
            Cell(words.speed(row["busbw_p50_gbps"]), "bold"),
            Cell(words.text(row["reason"]), DIM),
        ]
        for row in found["longest"]
    ]
    page.table(columns, rows)


def _group(row: Row) -> str:
    kind = words.text(row["group_kind"])
    return kind if row["group_size"] is None else f"{kind} of {row['group_size']}"


def print_layers(document: Document, page: Page) -> None:
    """Print the slowest layers, and those with a trend."""
    found = document["layers"]
    if not found["slowest"]:
        page.heading("Layers", "the input has no layer times")
        return
    page.heading("Layers", _first(found["slowest"], found["layers"], "layer", "slowest"))
    columns = (
        Column("layer", least=8),
        Column("kind", spare=2),
        Column("median", right=True),
        Column("p95", right=True),
        Column("max", right=True),
        Column("worst step", right=True, spare=1),
        Column("cv", right=True, spare=3),
        Column(""),
        Column("trend", spare=1),
    )
    most = max(row["p50_ms"] or 0 for row in found["slowest"]) or 1
    rows = [
        [
            Cell(row["layer"]),
            Cell(row["layer_kind"]),
            Cell(words.milliseconds(row["p50_ms"])),
            Cell(words.milliseconds(row["p95_ms"])),
            Cell(words.milliseconds(row["max_ms"]), WARN if row["outlier_steps"] else ""),
            Cell(words.text(row["worst_step"])),
            Cell(words.percent(row["cv_ratio"])),
            Cell(page.bar((row["p50_ms"] or 0) / most, 16).rstrip(page.glyphs.rest)),
            Cell(_trend(row), WARN if row["trend"] == "rising" else ""),
        ]
        for row in found["slowest"]
    ]
    page.table(columns, rows)
    for row in found["drifting"]:
        page.prose(f"layer {row['layer']} is {_trend(row)} over the run", style=WARN)
    more = found["drifting_layers"] - len(found["drifting"])
    if more > 0:
        page.prose(f"... and {counted(more, 'layer')} more with a trend", style=WARN)


def _trend(row: Row) -> str:
    if row["trend"] in {"rising", "falling"}:
        return f"{row['trend']} {words.signed(row['trend_ratio'])}"
    return words.text(row["trend"])


def print_split(document: Document, page: Page) -> None:
    """Print the best split of the layers, if it saves anything."""
    stages = document["split"]
    if not stages:
        return
    gain, title = stages[0]["gain_ratio"], "Split of the layers"
    if gain is None:
        page.heading(title, words.why(stages[0]["reason"]))
        return
    if gain < _GAIN:
        page.heading(title, f"the best split would save {words.percent(gain)} of a step")
        return
    covered = words.percent(stages[0]["covered_ratio"])
    part = f"; the listed modules are {covered} of a step" if covered else ""
    page.heading(title, f"a better split would save {words.percent(gain)} of a modelled step{part}")
    columns = (
        Column("stage", right=True),
        Column("layers now", least=12),
        Column("micro-batch now", right=True),
        Column("better", least=12),
        Column("micro-batch", right=True),
    )

    def span(first: str, last: str) -> str:
        return first if first == last else f"{first} {page.glyphs.arrow} {last}"

    rows = [
        [
            Cell(str(row["stage"])),
            Cell(span(row["current_first_layer"], row["current_last_layer"])),
            Cell(words.milliseconds(row["current_micro_batch_ms"])),
            Cell(span(row["first_layer"], row["last_layer"]), GOOD),
            Cell(words.milliseconds(row["micro_batch_ms"]), GOOD),
        ]
        for row in stages[:_STAGES]
    ]
    page.table(columns, rows)


def print_plan(document: Document, page: Page) -> None:
    """Print the communication of a workload plan."""
    found = document["plan"]
    if not found["largest"]:
        return
    page.heading(
        "Planned communication", _first(found["largest"], found["kinds"], "kind", "largest")
    )
    columns = (
        Column("pass"),
        Column("collective", least=10),
        Column("group"),
        Column("calls", right=True),
        Column("bytes", right=True),
        Column("compute", right=True, spare=1),
        Column("to hide it", right=True),
        Column("reason", spare=2),
    )
    rows = [
        [
            Cell(row["pass"]),
            Cell(row["collective"]),
            Cell(_group(row)),
            Cell(words.count(row["calls"])),
            Cell(words.size(row["bytes"])),
            Cell(words.milliseconds(row["compute_ms"])),
            Cell(words.speed(row["needed_gbps"]), "bold"),
            Cell(words.text(row["reason"]), DIM),
        ]
        for row in found["largest"]
    ]
    page.table(columns, rows)


def _first(shown: Sequence[Row], kinds: int, what: str, order: str) -> str:
    if len(shown) < kinds:
        return f"the {len(shown)} {order} of {counted(kinds, what)}"
    return counted(kinds, what)
