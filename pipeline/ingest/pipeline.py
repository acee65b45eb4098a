"""Ingest: discover, sniff, group into runs, parse, commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from tracelake.base.errors import UsageError
from tracelake.base.memory_limit import jobs_within, processors
from tracelake.base.metrics import count, phase
from tracelake.execution.cluster import Workers
from tracelake.ingest.batches import batches
from tracelake.ingest.commit import commit_dates, commit_groups, commit_skips
from tracelake.ingest.duplicates import settle_duplicates
from tracelake.ingest.fence import PARSER_FAILED, parsers_failed
from tracelake.ingest.group import group
from tracelake.ingest.known_inputs import KnownInputs, Record
from tracelake.ingest.options import Options
from tracelake.ingest.parse import Progress, parse
from tracelake.ingest.places import name_hosts
from tracelake.ingest.report import IngestReport, notes_on, nothing_usable
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.ingest.run_result import RunResult
from tracelake.ingest.sniff import Sniffed, skips_of, sniff
from tracelake.inputs.discover import discover
from tracelake.inputs.streams import Copies
from tracelake.lake.dropped import dropped_runs
from tracelake.lake.home import real_name
from tracelake.lake.losses import Losses
from tracelake.lake.manifest import Snapshot
from tracelake.lake.store import Lake


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
        jobs: Runs parsed at the same time on this machine; None for one per processor.
        memory: Bytes for each process; fewer jobs run at once if they would not fit.
        workers: Workers that parse runs; None for this machine.
        losses: What is lost of the lake: the input of these runs is read again.

    Raises:
        InputError: No input is usable.
        LakeError: The lake cannot be written.
        UsageError: Not even one job fits into the memory.
        WorkersError: Runs were not parsed; all others are in the lake.
    """
    width = _width(jobs, memory, workers)
    lost = losses.runs if losses else {}
    lake.adopt_packs()
    with lake.staging("ingest") as staging:
        sniffed, plans = _planned(inputs, lake, lake.name, options, staging / "spool", lost)
        commit_dates(lake, plans)
        unread = (p for p in plans if not p.status.is_read)
        results = [RunResult.of(p, missing=p.missing) for p in unread]
        skips, failed = sniffed.skips, sniffed.failures
        todo = {p.run_id: p for p in plans if p.status.is_read}
        divided = [*batches([*todo.values()], workers.width if workers else width)]
        with closing(
            parse(divided, options, staging, lake.name, width, workers, progress)
        ) as parsed:
            for groups in parsed:
                for result in commit_groups(lake, groups, todo, shorten=options.replace):
                    if result.usable:
                        results.append(result)
                        continue
                    if result.failure:
                        failed.append(result.failure)
                    reason = PARSER_FAILED if result.failure else "no_records"
                    inputs_of_run = todo[result.run_id].inputs
                    skips.extend(skips_of(inputs_of_run, reason, lasting=result.foreign))
        # Arrow keeps the memory that parsers freed, and a build in this process needs as much.
        pa.default_memory_pool().release_unused()
        read_again = {r.run_id for r in results if r.status is Status.UPDATED} & lost.keys()
        anew = losses is not None and any(part in losses.parts for part in lake.snapshot().skipped)
        labels = {c.entry.label for p in plans for c in p.inputs}
        with lake.lock("skipped"):  # read, changed and written by one ingest at a time
            lake.agree(
                lambda: commit_skips(lake, skips, sniffed.covered, labels, staging, anew=anew)
            )
    lake.agree(lambda: settle_duplicates(lake, lost.keys() - read_again))
    ordered = tuple(sorted(results, key=lambda r: r.run_id))
    failures = tuple(sorted(failed, key=lambda f: (f.run_id or "", f.input)))
    notes = tuple(notes_on(plans, options))
    report = IngestReport(ordered, tuple(skips), notes, failures)
    count(**report.amounts)
    if not report.runs:
        raise parsers_failed(failures) or nothing_usable(inputs, skips, options)
    return report


def plan(
    inputs: Sequence[str], lake_name: str, options: Options, spool: Path
) -> tuple[list[RunPlan], list[Record]]:
    """Return what an ingest would do: runs with their status, and skipped inputs.

    Raises:
        InputError: A name matches nothing.
        UsageError: An option is wrong.
    """
    sniffed, plans = _planned(inputs, Lake.find(lake_name), lake_name, options, spool)
    return plans, sniffed.skips


def _planned(
    inputs: Sequence[str],
    lake: Lake | None,
    lake_name: str,
    options: Options,
    spool: Path,
    lost: Collection[str] = (),
) -> tuple[Sniffed, list[RunPlan]]:
    snapshot = lake.snapshot() if lake else Snapshot({}, ())
    skipped, dropped = (lake.skipped_inputs(), dropped_runs(lake)) if lake else ((), {})
    known = KnownInputs(snapshot, skipped, dropped, lost)
    with phase("find"):
        roots = discover(inputs, spool, real_name(lake_name), options.max_expand)
        sniffed = sniff(roots, options, known, Copies(spool / ".copies"))
        name_hosts(sniffed)
    with phase("plan"):
        return sniffed, group(sniffed, options, known)


def _width(jobs: int | None, memory: int | None, workers: Workers | None) -> int:
    """Return how many jobs run at once in this process."""
    width = jobs or processors()
    if memory is None:
        return width
    if workers and jobs_within(memory, workers.per_process) < workers.per_process:
        raise UsageError(
            f"--memory is too small for {workers.per_process} threads in a worker:"
            f" {memory / 1e6:.0f} MB",
            hint="start workers with fewer threads: dask worker --nthreads 1",
        )
    return jobs_within(memory, width)
