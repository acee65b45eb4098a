"""Drives an ingest: plans, submits jobs to an executor, commits group by group."""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from pipeline import files
from pipeline.budget import jobs_within
from pipeline.errors import InputError
from pipeline.ingest.discover import resolve_roots
from pipeline.ingest.find import Options, find
from pipeline.ingest.memory import Memory, Record, label_of, skip_record
from pipeline.ingest.outcome import IngestReport, RunOutcome, outcome_of, unplaced
from pipeline.ingest.plan import RunPlan, Status, plan_runs
from pipeline.ingest.work import RunResult, ingest_job, record_of
from pipeline.lake import Change, Lake, RunEntry, Snapshot, dropped_runs
from pipeline.measures import count, phase
from pipeline.parts import LANES, PartWriter
from pipeline.schema import tables
from pipeline.waiting import wait_for_one

_READ = (Status.NEW, Status.UPDATED)


class Progress(Protocol):
    """Told what an ingest is doing; draws, prints or ignores it."""

    def planned(self, runs: int, files: int, weight: int) -> None:
        """So many runs of so many files are to be read, of so many bytes as far as known."""

    def advance(self, weight: int, files: int, rejected: int) -> None:
        """So many more of these bytes and files have been dealt with, and lines rejected."""


def plan(
    inputs: Sequence[str], lake_name: str, options: Options, spool: Path
) -> tuple[list[RunPlan], list[Record]]:
    """What an ingest would do: runs with their status, and inputs passed over.

    Raises:
        InputError: A name matches nothing.
        UsageError: An option does not fit.
    """
    lake = Lake.open(lake_name) if Lake.exists(lake_name) else None
    snapshot = lake.snapshot() if lake else Snapshot({}, ())
    memory = Memory(
        snapshot, lake.skipped_inputs() if lake else (), dropped_runs(lake) if lake else {}
    )
    with phase("find"):
        findings = find(resolve_roots(inputs, spool), options, memory, lake_name)
    with phase("plan"):
        return plan_runs(findings, options, memory), findings.skips


def ingest(
    inputs: Sequence[str],
    lake: Lake,
    options: Options,
    *,
    jobs: int | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Brings a lake up to date with its inputs.

    Args:
        jobs: Runs parsed at the same time; None for one per processor.
        memory: Bytes for the whole process: fewer jobs run where they would not fit.
        executor: Where jobs run; None for threads of this process.

    Raises:
        InputError: Nothing that was named is usable.
        LakeError: The lake cannot be written.
        UsageError: Not even one job fits into the memory.
    """
    width = jobs or _processors()
    if memory is not None:
        width = jobs_within(memory, width)
    with lake.staging("ingest") as staging, ThreadPoolExecutor((1 + LANES) * width) as helper:
        plans, skips = plan(inputs, lake.name, options, staging / "spool")
        work = _Jobs(lake, options, staging, helper, progress)
        with ThreadPoolExecutor(width) if executor is None else nullcontext(executor) as runner:
            outcomes = work.run(plans, runner)
        skips = [*skips, *work.unusable]
        with lake.lock("skipped"):  # read, changed and written by one ingest at a time
            _commit_skips(lake, skips, plans, staging, helper)
    report = IngestReport(
        tuple(sorted(outcomes, key=lambda o: o.run_id)),
        tuple(skips),
        tuple(unplaced(plans, options.hosts)),
    )
    count(**report.amounts)
    if not report.runs:
        raise _nothing_usable(inputs, skips, options)
    return report


def _nothing_usable(inputs: Sequence[str], skips: Sequence[Record], options: Options) -> InputError:
    reasons: dict[str, list[str]] = defaultdict(list)
    for skip in skips:
        reasons[skip["reason"]].append(label_of(skip))
    told = "; ".join(
        f"{reason}: {labels[0]}" + (f" and {len(labels) - 1} more" if len(labels) > 1 else "")
        for reason, labels in sorted(reasons.items())
    )
    return InputError(
        f"nothing usable ({told or 'no files'})",
        path=", ".join(inputs),
        hint="drop --input-format, or see `tracelake formats`"
        if options.input_format
        else "`tracelake formats` says what is understood",
    )


def _processors() -> int:
    """Processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Jobs:
    """Parses runs on an executor and commits a group when its last run is parsed."""

    def __init__(
        self,
        lake: Lake,
        options: Options,
        staging: Path,
        helper: Executor,
        progress: Progress | None,
    ) -> None:
        self.unusable: list[Record] = []
        self._lake = lake
        self._options = options
        self._staging = staging
        self._stop = threading.Event()
        self._helper = helper
        self._progress = progress

    def run(self, plans: Sequence[RunPlan], runner: Executor) -> list[RunOutcome]:
        self._refresh([p for p in plans if p.status is Status.REFRESHED])
        outcomes = [
            RunOutcome(p.run_id, p.format.name, p.status, len(p.inputs), missing=p.missing)
            for p in plans
            if p.status not in _READ
        ]
        todo = [p for p in plans if p.status in _READ]
        if self._progress:
            files = sum(len(p.sources) for p in todo)
            self._progress.planned(len(todo), files, sum(p.weight for p in todo))
        open_groups: dict[str, int] = defaultdict(int)
        for p in todo:
            open_groups[p.group] += 1
        done: dict[str, list[RunResult]] = defaultdict(list)
        pending: set[Future[list[RunResult]]] = {
            runner.submit(
                ingest_job, job, self._options, self._staging, self._helper, self._advance
            )
            for job in _jobs(todo)
        }
        try:
            while pending:
                ended = wait_for_one(pending)
                pending -= ended  # and with them the results, once they are committed
                for result in chain.from_iterable(future.result() for future in ended):
                    done[result.plan.group].append(result)
                    open_groups[result.plan.group] -= 1
                # What has ended during a commit is the next: to be on the disk costs once for all.
                whole = sorted(group for group in done if not open_groups[group])
                outcomes.extend(self._commit({group: done.pop(group) for group in whole}))
        except BaseException:  # an interrupt as well: jobs under way end at their next block
            self._stop.set()
            for future in pending:
                future.cancel()
            raise
        return outcomes

    def _advance(self, weight: int, files: int, rejected: int) -> None:
        if self._stop.is_set():
            raise CancelledError
        if self._progress:
            self._progress.advance(weight, files, rejected)

    def _refresh(self, plans: Sequence[RunPlan]) -> None:
        """Remembers new dates of unchanged content, a group at a time."""
        by_group: dict[str, list[RunEntry]] = defaultdict(list)
        for p in plans:
            entry = _restamped(p)
            by_group[entry.group].append(entry)
        if by_group:
            self._lake.commit_all([Change(group, runs, {}, {}) for group, runs in by_group.items()])

    def _commit(self, done: Mapping[str, Sequence[RunResult]]) -> list[RunOutcome]:
        outcomes: list[RunOutcome] = []
        changes: list[Change] = []
        for group, results in done.items():
            good: list[RunResult] = []
            for result in sorted(results, key=lambda r: r.plan.run_id):
                if not result.usable:
                    self._pass_over(result)
                elif shorter := self._shorter(result):
                    outcomes.append(outcome_of(result, Status.KEPT, shorter))
                else:
                    good.append(result)
                    outcomes.append(outcome_of(result, result.plan.status))
            if good:
                changes.append(_change(group, good))
        if changes:
            with phase("commit"):
                self._lake.commit_all(changes)
        for result in chain.from_iterable(done.values()):
            for path in result.staged.values():
                files.remove(path)
        return outcomes

    def _shorter(self, result: RunResult) -> tuple[str, ...]:
        """Inputs that have fewer lines than when they were last read."""
        if self._options.replace:
            return ()
        before = {label_of(s): s["lines"] for run in result.plan.replaces for s in run.sources}
        now = {label_of(s): s["lines"] for s in result.entry.sources}
        return tuple(label for label, lines in now.items() if lines < before.get(label, 0))

    def _pass_over(self, result: RunResult) -> None:
        for entry in (candidate.entry for candidate in result.plan.inputs):
            self.unusable.append(skip_record(entry.path, entry.member, "no_records"))


def _jobs(plans: Sequence[RunPlan]) -> list[list[RunPlan]]:
    """One job per run; runs that share a tar are one job, so that it is read once."""
    job_of: dict[str, list[RunPlan]] = {}
    jobs: dict[int, list[RunPlan]] = {}
    for p in plans:
        tars = {c.entry.location for c in p.sources if c.entry.packed}
        joined = {id(job_of[tar]): job_of[tar] for tar in tars if tar in job_of}
        job = next(iter(joined.values()), [])
        jobs[id(job)] = job
        for other in list(joined.values())[1:]:
            job.extend(jobs.pop(id(other)))
            job_of.update({tar: job for tar, owner in job_of.items() if owner is other})
        job.append(p)
        job_of.update(dict.fromkeys(tars, job))
    return list(jobs.values())


def _change(group: str, results: Sequence[RunResult]) -> Change:
    """What becomes of a group: its new runs, and the end of those that they supersede."""
    new = {result.entry.run_id for result in results}
    drop = {run.run_id: run.group for result in results for run in result.plan.replaces}
    return Change(
        group,
        [result.entry for result in results],
        {final: path for result in results for final, path in result.staged.items()},
        {run: owner for run, owner in drop.items() if run not in new or owner != group},
    )


def _restamped(p: RunPlan) -> RunEntry:
    """The committed run with its inputs' new dates."""
    (run,) = p.replaces
    by_label = {c.entry.label: c for c in p.inputs}
    return replace(
        run,
        sources=tuple(record_of(by_label[label_of(record)], record) for record in run.sources),
    )


def _commit_skips(
    lake: Lake, skips: Iterable[Record], plans: Iterable[RunPlan], staging: Path, helper: Executor
) -> None:
    """Adds what was passed over to the lake's list, less what has been ingested since."""
    before = {label_of(record): record for record in lake.skipped_inputs()}
    now = before | {label_of(record): record for record in skips}
    passed = {label_of(record) for record in skips}
    for p in plans:
        for candidate in p.inputs:
            if candidate.entry.label not in passed:
                now.pop(candidate.entry.label, None)
    if now == before:
        return
    records = [now[label] for label in sorted(now)]
    writer = PartWriter(None, staging, helper)
    rows = [{name: r[name] for name in ("path", "member", "reason")} for r in records]
    schema = tables()["skipped"].storage_schema
    writer.add("skipped", [pa.RecordBatch.from_pylist(rows, schema=schema)])
    lake.commit_skipped(records, writer.close())
