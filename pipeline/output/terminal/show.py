"""Print one run: main figures, findings, sections, and what is missing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from operator import itemgetter

from tracelake.base import figures
from tracelake.base.text import counted
from tracelake.output.terminal.facts import Document, why
from tracelake.output.terminal.page import DIM, GOOD, SEVERITIES, WARN, Cell, Page
from tracelake.output.terminal.sections import print_sections
from tracelake.schema.topology import KEYS
from tracelake.warehouse.headline import may_run
from tracelake.warehouse.values import Row

_CURVE = 60
_MISSING = 12


def print_run(document: Document, page: Page) -> None:
    """Print the document of `read_run`."""
    _head(document, page)
    _attention(document, page)
    _faults(document, page)
    print_sections(document, page)
    _opportunities(document, page)
    _coverage(document, page)


def _head(document: Document, page: Page) -> None:
    run, inputs, dot = document["run"], document["inputs"], f" {page.glyphs.dot} "
    if run["label"] is not None:
        page.line(Cell(run["label"], "bold"))
    page.line(Cell(document["run_id"], "bold" if run["label"] is None else DIM))
    date = f"{run['run_date']} (from the {run['date_source']})" if run["run_date"] else "no date"
    facts = [run["format"], date, *([run["model"]] if run["model"] else [])]
    if run["simulated"]:
        facts.append("simulated")
    page.prose(dot.join(facts))
    if topology := _topology(run):
        page.prose(topology)
    page.prose(
        f"{counted(inputs['files'], 'file')}, {figures.amount(inputs['bytes'])},"
        f" {counted(inputs['lines'], 'line')}, {figures.count(inputs['rejected'])} rejected"
    )
    if original := document["copy_of"]:
        origin = f"a copy of {original['label']}, which counts in its place"
        page.prose(f"{origin}: tracelake show {original['hash']}", style=WARN)
    if later := document["continued_by"]:
        page.prose(f"the job went on in {later['label']}: tracelake show {later['hash']}")
    if running := may_run(document["running_until"]):
        page.prose(f"its job {running}: its last date was less than an hour before the last build")
    for view in document["views"]:
        named = f"{view['view_label'] or view['view_run_id']} ({view['view_format']})"
        page.prose(f"same job: {named}, by {view['related_by']}: tracelake show {view['hash']}")
    page.line()
    _figures(document, page)


def _topology(run: Row) -> str:
    """Return the known layout, by source."""
    sources = run["topology_source"] or {}
    by_source: dict[str, list[str]] = defaultdict(list)
    for key in KEYS:
        if run[key] is not None:
            by_source[sources.get(key, "printed")].append(f"{figures.label(key)} {run[key]}")
    where = {
        "set": "by option",
        "printed": "from the lines",
        "name": "from the name",
        "derived": "derived",
    }
    order = sorted(by_source, key=lambda source: (list(where).index(source), source))
    return "; ".join(f"{', '.join(by_source[source])} ({where[source]})" for source in order)


def _figures(document: Document, page: Page) -> None:
    summary, steps = document["summary"], document["steps"]
    rows: list[tuple[str, str, str]] = []
    if steps["p50_ms"] is not None:
        rows.append(("step time", figures.milliseconds(steps["p50_ms"]), _steps(steps, page)))
    theory = next((s["theory_bubble_ratio"] for s in document["stages"]), None)
    bubble = summary["bubble_ratio"]
    if bubble is not None and document["run"]["pp"] != 1:  # one stage is no pipeline
        beside = "" if theory is None else f"theory {figures.percent(theory)}"
        rows.append(("bubble", figures.percent(bubble), beside))
    if summary["comm_ratio"] is not None:
        beside = "of the pipeline windows, inside operations"
        rows.append(("communication", figures.percent(summary["comm_ratio"]), beside))
    if summary["busbw_gbps"] is not None:
        beside = f"of {summary['busbw_call']}"
        rows.append(("bus bandwidth", figures.speed(summary["busbw_gbps"]), beside))
    if summary["stragglers"] is not None:
        lost = summary["gpu_hours_lost"]
        cost = f", {figures.gpu_hours(lost)}" if lost else ""
        beside = f"{figures.milliseconds(summary['time_lost_ms'])} lost{cost}"
        rows.append(("stragglers", figures.count(summary["stragglers"]), beside))
        if summary["suspects"]:
            beside = "slow in too few steps, or beside one peer only"
            rows.append(("suspects", figures.count(summary["suspects"]), beside))
    if summary["slowest_stage"] is not None:
        beside = f"the busiest in {counted(summary['slowest_stage_steps'], 'step')}"
        rows.append(("slowest stage", str(summary["slowest_stage"]), beside))
    rows.append(_baseline(document["baseline"]))
    for label, value, beside in rows:
        page.prose(beside, first=f"  {label:<14}{value:>17}  ", mark="bold", style=DIM)


def _steps(steps: Row, page: Page) -> str:
    """Print the distribution of the steps, and their curve."""
    if steps["counted_steps"] < 2:
        return "one step"
    pieces = [
        f"median of {counted(steps['counted_steps'], 'step')}",
        f"{figures.milliseconds(steps['min_ms'])} to {figures.milliseconds(steps['max_ms'])}",
        f"worst is {steps['worst_step']}",
    ]
    if steps["outlier_steps"]:
        pieces.append(counted(steps["outlier_steps"], "outlier"))
    curve = page.curve([point["step_ms"] for point in steps["curve"]], _CURVE)
    return f"{', '.join(pieces)}  {curve}"


def _baseline(row: Row) -> tuple[str, str, str]:
    runs = counted(row["baseline_runs"], "earlier run")
    if row["verdict"] == "not_comparable":
        return "baseline", "not comparable", why(row["reason"])
    return "baseline", row["verdict"], f"against {runs} of its configuration"


def _attention(document: Document, page: Page) -> None:
    found = document["attention"]
    if not found:
        repeats = "what is wrong is said of the run that it repeats"
        page.heading("Attention", repeats if document["copy_of"] else "No problems found")
        return
    page.heading("Attention")
    width = max(12, *(len(kind["kind"]) for kind in found))
    for kind in found:
        style = SEVERITIES[kind["severity"]]
        pairs = zip(kind["seen"], kind["advice"], strict=True)
        for advice, alike in itertools.groupby(pairs, key=itemgetter(1)):
            for seen, _ in alike:
                page.prose(seen, first=f"  {kind['kind']:<{width}} ", mark=style)
            page.prose(advice, first=" " * (width + 3), style=DIM)
        if kind["count"] > len(kind["seen"]):
            more = f"... and {figures.count(kind['count'] - len(kind['seen']))} more"
            command = f'tracelake query "{kind["query"]}"'
            page.prose(f"{more}: {command}", first=" " * (width + 3), style=DIM)


def _faults(document: Document, page: Page) -> None:
    found = document["faults"]
    if not found:
        return
    page.heading("Files", "read, with faults")
    for row in found:
        files = f" in {counted(row['files'], 'file')}" if document["inputs"]["files"] > 1 else ""
        name = f"{row['name'].replace('_', ' ')}{files}"
        page.prose(f"{name}: {row['why']}" if row["why"] else name, first="  ")


def _opportunities(document: Document, page: Page) -> None:
    found = document["opportunities"]
    if not found:
        return
    page.heading("What would make it faster")
    for row in found:
        gain = f"{figures.percent(row['gain_ratio'])} ({row['confidence']})"
        page.prose(f"{row['evidence']} {row['change']}", first=f"  {gain:<18} ", mark=GOOD)


def _coverage(document: Document, page: Page) -> None:
    coverage = document["coverage"]
    parts = []
    if coverage["ranks_seen"] is not None:
        seen, expected = (figures.count(coverage[f"ranks_{what}"]) for what in ("seen", "expected"))
        parts.append(f"{seen} of {expected or '?'} ranks")
    if coverage["steps"] is not None:
        parts.append(counted(coverage["steps"], "step"))
    if coverage["restarts"]:
        parts.append(counted(coverage["restarts"], "restart"))
    if coverage["calls"]:
        matched = figures.count(coverage["matched_calls"])
        parts.append(f"{matched} of {counted(coverage['calls'], 'call')} matched")
    if coverage["rejects"] is not None:
        parts.append(f"{counted(coverage['rejects'], 'line')} rejected")
    page.heading("Coverage", ", ".join(parts))
    missing = [*document["not_computable"], *document["partly_computable"]]
    if not missing:
        page.prose(
            "all metrics were computed, but from an incomplete run: see Attention"
            if coverage["complete"] is False and document["attention"]
            else "all metrics that this input supports were computed"
        )
    # One cause has many effects: print each hint once.
    causes: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in missing:
        causes[row["reason"].partition(" ")[0], row["hint"]].append(row)
    for (reason, hint), rows in list(causes.items())[:_MISSING]:
        page.prose(why(reason))
        lacking = (" ".join([row["figure"], *row["reason"].split(" ", 1)[1:]]) for row in rows)
        page.prose("; ".join(lacking), first="    no ", style=DIM)
        if hint:
            page.prose(hint, first=f"    {page.glyphs.arrow} ", style=GOOD)
    if len(causes) > _MISSING:
        page.prose(
            f"... and {figures.count(len(causes) - _MISSING)} more: --format json has all",
            style=DIM,
        )
