"""Commit the results of an ingest: runs group by group, and the list of skipped inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tracelake.base import files
from tracelake.base.metrics import phase
from tracelake.ingest.known_inputs import Record
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.ingest.run_result import RunResult
from tracelake.lake.layout import SKIPPED_PARTITION, names_runs
from tracelake.lake.manifest import Change, RunEntry, label_of
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.lake.store import Lake
from tracelake.schema.tables import tables


def commit_dates(lake: Lake, plans: Iterable[RunPlan]) -> None:
    """Record new dates of unchanged content, a group at a time."""
    before: dict[str, list[RunEntry]] = defaultdict(list)
    now: dict[str, list[RunEntry]] = defaultdict(list)
    for plan in plans:
        if plan.status is Status.REFRESHED:
            (run,) = plan.replaces
            inputs = {c.entry.label: c for c in plan.inputs}
            sources = tuple(inputs[label_of(s)].record(s) for s in run.sources)
            before[run.group].append(run)
            now[run.group].append(replace(run, sources=sources))
    if now:
        lake.commit_all([Change(g, runs, {}, over=before[g]) for g, runs in now.items()])


def commit_groups(
    lake: Lake,
    groups: Mapping[str, Sequence[RunResult]],
    plans: Mapping[str, RunPlan],
    *,
    shorten: bool,
) -> Iterator[RunResult]:
    """Commit the runs of groups at once; yield their results.

    A run without a line of its format is not committed, nor one whose parser failed. Unless
    `shorten` is given, neither is one with fewer lines than when it was last read: the run in the
    lake stays.

    Args:
        plans: By run id.
    """
    changes: list[Change] = []
    done: list[RunResult] = []
    for group, results in groups.items():
        good = []
        for result in sorted(results, key=lambda r: r.run_id):
            plan = plans[result.run_id]
            if result.usable and not shorten and (missing := _shorter(result, plan)):
                kept = plan.replaces[0].run_id
                done.append(replace(result, run_id=kept, status=Status.KEPT, missing=missing))
                continue
            done.append(result)
            if result.usable:
                good.append(result)
        if good:
            changes.append(_change(group, good, results, plans))
    if changes:
        with phase("commit"):
            lake.commit_all(changes)
    for path in {path for result in done for path in result.staged.values()}:
        files.remove(path)
    for result in done:
        yield replace(result, entry=None, staged={})


def _shorter(result: RunResult, plan: RunPlan) -> tuple[str, ...]:
    """Return inputs that have fewer lines than when they were last read."""
    before = {label_of(s): s["lines"] for run in plan.replaces for s in run.sources}
    now = {label_of(s): s["lines"] for s in result.entry.sources} if result.entry else {}
    return tuple(label for label, lines in now.items() if lines < before.get(label, 0))


def _change(
    group: str,
    good: Sequence[RunResult],
    every: Iterable[RunResult],
    plans: Mapping[str, RunPlan],
) -> Change:
    """Return the change of a group: its new runs, and the runs that they replace.

    Args:
        good: What is committed of `every` run that was read: they share parts.
    """
    new = {result.run_id for result in good}
    replaced = {run.run_id for name in new for run in plans[name].replaces}
    staged = {final: path for result in good for final, path in result.staged.items()}
    runs_of: dict[str, list[str]] = defaultdict(list)
    for result in sorted(every, key=lambda r: r.run_id):
        for part in filter(names_runs, staged.keys() & result.staged.keys()):
            runs_of[part].append(result.run_id)
    return Change(
        group,
        [result.entry for result in good if result.entry],
        staged,
        replaced - new,
        runs_of={part: tuple(runs) for part, runs in runs_of.items()},
    )


def commit_skips(
    lake: Lake,
    skips: Iterable[Record],
    covered: Sequence[str],
    ingested: Collection[str],
    staging: Path,
    *,
    anew: bool,
) -> None:
    """Bring the lake's list of skipped inputs up to date.

    An earlier record goes if its input has been ingested since, or if this ingest looked where it
    lies and did not skip it.

    Args:
        covered: Locations that this ingest looked at.
        ingested: Labels of its inputs.
        anew: Whether the list is written even if it has not changed.
    """
    before = {label_of(record): record for record in lake.skipped_inputs()}
    now = {label_of(record): record for record in skips}
    inside = tuple(f"{place.rstrip('/')}/" for place in covered)
    for label, record in before.items():
        # Earlier versions did not note it: such a record comes back with its own root.
        location = record.get("location")
        looked_at = location is None or f"{location}/".startswith(inside)
        if not looked_at and label not in ingested:
            now.setdefault(label, record)
    if now == before and not anew:
        return
    records = [now[label] for label in sorted(now)]
    rows = [{name: r[name] for name in ("path", "member", "reason")} for r in records]
    schema = tables()["skipped"].storage_schema
    with ThreadPoolExecutor(LANES) as helper:
        writer = PartWriter(staging, helper, "storage_schema")
        writer.add("skipped", [pa.RecordBatch.from_pylist(rows, schema=schema)])
        lake.commit_skipped(records, writer.close(SKIPPED_PARTITION))
