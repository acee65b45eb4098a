"""Run an ingest: plan, submit jobs to an executor, commit group by group."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from tracelake.base import files
from tracelake.base.errors import InputError, UsageError, WorkersError
from tracelake.base.memory_limit import jobs_within, processors
from tracelake.base.metrics import count, phase
from tracelake.base.text import counted
from tracelake.execution import Workers
from tracelake.ingest.batches import Job, batches
from tracelake.ingest.duplicates import settle_duplicates
from tracelake.ingest.executors import Crew, Elsewhere, Parsed, Progress, Threads
from tracelake.ingest.find import Findings, find
from tracelake.ingest.known_inputs import KnownInputs, Record, location_of, skip_record
from tracelake.ingest.options import Options
from tracelake.ingest.outcome import IngestReport, RunOutcome, outcome_of, unplaced
from tracelake.ingest.places import name_hosts
from tracelake.ingest.plan import RunPlan, Status, plan_runs
from tracelake.ingest.work import RunResult, record_of
from tracelake.inputs.discover import resolve_roots
from tracelake.lake import (
    Change,
    Lake,
    Losses,
    RunEntry,
    Snapshot,
    dropped_runs,
    label_of,
    real_name,
)
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.schema.tables import tables
from tracelake.storage import is_uri

_READ = (Status.NEW, Status.UPDATED)


def plan(
    inputs: Sequence[str], lake_name: str, options: Options, spool: Path
) -> tuple[list[RunPlan], list[Record]]:
    """Return what an ingest would do: runs with their status, and skipped inputs.

    Raises:
        InputError: A name matches nothing.
        UsageError: An option is wrong.
    """
    plans, findings = _plan(inputs, lake_name, options, spool)
    return plans, findings.skips


def _plan(
    inputs: Sequence[str],
    lake_name: str,
    options: Options,
    spool: Path,
    lost: Collection[str] = (),
) -> tuple[list[RunPlan], Findings]:
    lake = Lake.find(lake_name)
    snapshot = lake.snapshot() if lake else Snapshot({}, ())
    memory = KnownInputs(
        snapshot, lake.skipped_inputs() if lake else (), dropped_runs(lake) if lake else {}, lost
    )
    with phase("find"):
        findings = find(resolve_roots(inputs, spool), options, memory, real_name(lake_name))
        name_hosts(findings)
    with phase("plan"):
        return plan_runs(findings, options, memory), findings


def ingest(
    inputs: Sequence[str],
    lake: Lake,
    options: Options,
    *,
    jobs: int | None = None,
    memory: int | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    losses: Losses | None = None,
) -> IngestReport:
    """Bring a lake up to date with its inputs.

    Args:
        jobs: Runs parsed at the same time in this process; None for one per processor.
        memory: Bytes for each process; fewer jobs run at once if they would not fit.
        workers: Workers that parse runs; None for threads of this process.
        losses: What is lost of the lake: the input of these runs is read again.

    Raises:
        InputError: No input is usable.
        LakeError: The lake cannot be written.
        UsageError: Not even one job fits into the memory.
        WorkersError: Runs were not parsed; all others are in the lake.
    """
    width = jobs or processors()
    if memory is not None:
        width = jobs_within(memory, width)
        if workers and jobs_within(memory, workers.per_process) < workers.per_process:
            raise UsageError(
                f"--memory is too small for {workers.per_process} threads in a worker:"
                f" {memory / 1e6:.0f} MB",
                hint="start workers with fewer threads: dask worker --nthreads 1",
            )
    lost = losses.runs if losses else {}
    with (
        lake.staging("ingest") as staging,
        ThreadPoolExecutor((1 + LANES) * width) as helper,
        ThreadPoolExecutor(width) as runner,
    ):
        plans, findings = _plan(inputs, lake.name, options, staging / "spool", lost)
        work = _Work(lake, options, staging, progress)
        outcomes = work.run(
            plans,
            Threads(runner, width, helper, progress)
            if workers is None
            else Elsewhere(workers, lake.part_files.base, progress),
        )
        skips = [*findings.skips, *work.unusable]
        read_again = {o.run_id for o in outcomes if o.status is Status.UPDATED} & lost.keys()
        lake.use_own_parts(read_again)
        anew = losses is not None and any(part in losses.parts for part in lake.snapshot().skipped)
        with lake.lock("skipped"):  # read, changed and written by one ingest at a time
            lake.agree(
                lambda: _commit_skips(lake, skips, findings.covered, plans, staging, helper, anew)
            )
    lake.agree(lambda: settle_duplicates(lake, lost.keys() - read_again))
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
        hint="drop --input-format, or list formats with: tracelake formats"
        if options.input_format
        else "list the known formats with: tracelake formats",
    )


class _Work:
    """Lets an executor parse runs, and commits a group when its last run is parsed."""

    def __init__(
        self, lake: Lake, options: Options, staging: Path, progress: Progress | None
    ) -> None:
        self.unusable: list[Record] = []
        self._lake = lake
        self._options = options
        self._staging = staging
        self._progress = progress
        self._plans: dict[str, RunPlan] = {}

    def run(self, plans: Sequence[RunPlan], crew: Crew) -> list[RunOutcome]:
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
        self._plans = {p.run_id: p for p in todo}
        open_groups = Counter(p.group for p in todo)
        done: dict[str, list[RunResult]] = defaultdict(list)
        lost: list[tuple[list[Job], WorkersError]] = []
        pending: dict[Parsed, list[Job]] = {
            crew.submit(batch, self._options, self._staging): batch
            for batch in batches(todo, crew.width)
        }
        try:
            while pending:
                for future in crew.wait(pending):
                    batch = pending.pop(future)  # and its results, once they are committed
                    try:
                        results = crew.results(batch, future)
                    except WorkersError as error:
                        lost.append((batch, error))
                        results = []
                    for result in results:
                        done[result.entry.group].append(result)
                    open_groups.subtract(p.group for job in batch for p in job)
                # Runs that end during a commit are committed together next, with one sync.
                whole = sorted(group for group in done if not open_groups[group])
                outcomes.extend(self._commit({group: done.pop(group) for group in whole}))
        except BaseException:  # also after an interrupt: running batches end at their next block
            crew.stop()
            for future in pending:
                future.cancel()
            raise
        if lost:
            raise _not_parsed(lost)
        return outcomes

    def _refresh(self, plans: Sequence[RunPlan]) -> None:
        """Record new dates of unchanged content, a group at a time."""
        by_group: dict[str, list[RunEntry]] = defaultdict(list)
        for p in plans:
            entry = _restamped(p)
            by_group[entry.group].append(entry)
        if by_group:
            self._lake.commit_all(
                [
                    Change(group, runs, {}, {}, over={run.run_id: run.generation for run in runs})
                    for group, runs in by_group.items()
                ]
            )

    def _commit(self, done: Mapping[str, Sequence[RunResult]]) -> list[RunOutcome]:
        outcomes: list[RunOutcome] = []
        changes: list[Change] = []
        for group, results in done.items():
            good: list[RunResult] = []
            for result in sorted(results, key=lambda r: r.entry.run_id):
                p = self._plans[result.entry.run_id]
                if not result.usable:
                    self._pass_over(p)
                elif shorter := self._shorter(result, p):
                    kept = outcome_of(result, Status.KEPT, shorter)
                    outcomes.append(replace(kept, run_id=p.replaces[0].run_id))
                else:
                    good.append(result)
                    outcomes.append(outcome_of(result, p.status))
            if good:
                changes.append(self._change(group, good))
        if changes:
            with phase("commit"):
                self._lake.commit_all(changes)
        for result in chain.from_iterable(done.values()):
            for path in result.staged.values():
                files.remove(path)
        return outcomes

    def _shorter(self, result: RunResult, p: RunPlan) -> tuple[str, ...]:
        """Return inputs that have fewer lines than when they were last read."""
        if self._options.replace:
            return ()
        before = {label_of(s): s["lines"] for run in p.replaces for s in run.sources}
        now = {label_of(s): s["lines"] for s in result.entry.sources}
        return tuple(label for label, lines in now.items() if lines < before.get(label, 0))

    def _pass_over(self, p: RunPlan) -> None:
        for entry in (candidate.entry for candidate in p.inputs):
            folder, name = os.path.split(entry.location)
            location = location_of(folder if is_uri(folder) else os.path.realpath(folder), name)
            self.unusable.append(skip_record(entry.path, entry.member, "no_records", location))

    def _change(self, group: str, results: Sequence[RunResult]) -> Change:
        """Return the change of a group: its new runs, and the runs that they replace."""
        new = {result.entry.run_id for result in results}
        replaced = [run for name in sorted(new) for run in self._plans[name].replaces]
        return Change(
            group,
            [result.entry for result in results],
            {final: path for result in results for final, path in result.staged.items()},
            {r.run_id: r.group for r in replaced if r.run_id not in new or r.group != group},
        )


def _not_parsed(lost: Sequence[tuple[list[Job], WorkersError]]) -> WorkersError:
    """Return the lost batches as one error; everything else is already in the lake."""
    inputs = [c.entry.label for batch, _ in lost for job in batch for p in job for c in p.sources]
    runs = sum(len(job) for batch, _ in lost for job in batch)
    error = lost[0][1]
    return WorkersError(
        f"{counted(runs, 'run')} of {counted(len(inputs), 'input')} could not be read,"
        f" {inputs[0]} among them: {error.message}",
        path=error.path,
        hint=error.hint,
    )


def _restamped(p: RunPlan) -> RunEntry:
    """Return the committed run with its inputs' new dates."""
    (run,) = p.replaces
    by_label = {c.entry.label: c for c in p.inputs}
    return replace(
        run,
        sources=tuple(record_of(by_label[label_of(record)], record) for record in run.sources),
    )


def _commit_skips(
    lake: Lake,
    skips: Iterable[Record],
    covered: Sequence[str],
    plans: Iterable[RunPlan],
    staging: Path,
    helper: Executor,
    anew: bool,
) -> None:
    """Adds what was passed over to the lake's list, less what no longer is.

    That is what has been ingested since, and what lies where this ingest has looked and was not
    passed over this time.
    """
    before = {label_of(record): record for record in lake.skipped_inputs()}
    now = {label_of(record): record for record in skips}
    ingested = {c.entry.label for p in plans for c in p.inputs} if before else set()
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
    writer = PartWriter(None, staging, helper)
    rows = [{name: r[name] for name in ("path", "member", "reason")} for r in records]
    schema = tables()["skipped"].storage_schema
    writer.add("skipped", [pa.RecordBatch.from_pylist(rows, schema=schema)])
    lake.commit_skipped(records, writer.close())
