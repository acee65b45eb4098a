"""Parse runs on an executor, and yield their results group by group."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from tracelake.base.errors import WorkersError
from tracelake.base.signals import wait_for_one
from tracelake.base.text import counted
from tracelake.execution.cluster import Workers
from tracelake.execution.processes import Processes
from tracelake.ingest.batches import Batch, portable
from tracelake.ingest.job import parse_batch, parse_in_worker
from tracelake.ingest.options import Options
from tracelake.ingest.run_plan import RunPlan
from tracelake.ingest.run_result import RunResult
from tracelake.lake.parquet import LANES
from tracelake.storage.store_path import is_uri

# What is worth processes, which take a second to start: so many small runs, or so much text of
# formats that Python reads.
_MANY_RUNS = 500
_MUCH_TEXT = 16 << 20

_Submit = Callable[[Batch], Future[list[RunResult]]]


class Progress(Protocol):
    """Receives the progress of an ingest; draws, prints or ignores it."""

    def planned(self, runs: int, files: int, weight: int) -> None:
        """Announce the runs and files to read, and their bytes as far as known."""

    def advance(self, weight: int, files: int, rejected: int) -> None:
        """Add bytes and files that are done, and rejected lines."""


def parse(
    batches: Sequence[Batch],
    options: Options,
    staging: Path,
    base: str,
    width: int,
    workers: Workers | None,
    progress: Progress | None,
) -> Generator[dict[str, list[RunResult]]]:
    """Parse batches and yield the results of groups, each when its last run has been parsed.

    Args:
        base: Directory or URI of the lake.
        width: Batches that are parsed at the same time on this machine.
        workers: Workers that parse instead; None for threads or processes, see `_processes`.

    Raises:
        WorkersError: Batches were not parsed; all others were yielded before.
    """
    plans = [p for batch in batches for p in chain(*batch)]
    if progress:
        files = sum(len(p.sources) for p in plans)
        progress.planned(len(plans), files, sum(p.weight for p in plans))
    groups = {p.run_id: p.group for p in plans}
    open_runs = Counter(groups.values())
    done: dict[str, list[RunResult]] = defaultdict(list)
    failed: list[tuple[Batch, WorkersError]] = []
    with (
        _processes(plans, min(width, len(batches)), workers) as executor,
        _submitting(options, staging, base, width, executor, progress) as submit,
    ):
        pending = {submit(batch): batch for batch in batches}
        try:
            while pending:
                for future in wait_for_one(pending):
                    batch = pending.pop(future)  # and its results, once they are committed
                    of_batch = [*chain(*batch)]
                    try:
                        results = future.result()
                    except WorkersError as error:
                        failed.append((batch, error))
                        results = []
                    for result in results:
                        done[groups[result.run_id]].append(result)
                    open_runs.subtract(p.group for p in of_batch)
                    if executor and progress and results:
                        files = sum(len(p.sources) for p in of_batch)
                        rejected = sum(result.rejected for result in results)
                        progress.advance(sum(p.weight for p in of_batch), files, rejected)
                # Runs that end during a commit are committed together next, with one sync.
                yield {g: done.pop(g) for g in sorted(done) if not open_runs[g]}
        finally:
            for future in pending:
                future.cancel()
    if failed:
        raise _not_parsed(failed)


def _processes(
    plans: Sequence[RunPlan], width: int, workers: Workers | None
) -> AbstractContextManager[Executor | None]:
    """Return the executor of batches in other processes; None for threads.

    Small runs cost Python's time, and all text but that of large formats, whose kernels release
    Python's lock: for it threads wait for each other. What discovery has read of small files in a
    store is in this process alone.
    """
    small = [p for p in plans if p.together]
    stored = any(is_uri(c.entry.location) for p in small for c in p.sources)
    text = sum(p.weight for p in plans if p.format.volume != "large")
    few = len(small) < _MANY_RUNS and text < _MUCH_TEXT
    if workers or width < 2 or stored or few:
        return nullcontext(workers)
    return Processes(width)


@contextmanager
def _submitting(
    options: Options,
    staging: Path,
    base: str,
    width: int,
    executor: Executor | None,
    progress: Progress | None,
) -> Iterator[_Submit]:
    """Yield the function that submits a batch; batches end soon if the context fails."""
    if executor:
        # The plan already has the hosts of ranks.
        shaping = replace(options, hosts=None)
        # Workers see that the staging folder is gone.
        yield lambda batch: executor.submit(
            parse_in_worker, portable(batch), shaping, base, staging
        )
        return
    stop = threading.Event()

    def advance(weight: int, files: int, rejected: int) -> None:
        if stop.is_set():
            raise CancelledError
        if progress:
            progress.advance(weight, files, rejected)

    with ThreadPoolExecutor((1 + LANES) * width) as helper, ThreadPoolExecutor(width) as runner:
        try:
            yield lambda batch: runner.submit(parse_batch, batch, options, staging, helper, advance)
        except BaseException:  # also after an interrupt: running batches end at their next block
            stop.set()
            raise


def _not_parsed(failed: Sequence[tuple[Batch, WorkersError]]) -> WorkersError:
    """Return the failed batches as one error; everything else is already in the lake."""
    plans = [p for batch, _ in failed for p in chain(*batch)]
    inputs = [c.entry.label for p in plans for c in p.sources]
    error = failed[0][1]
    return WorkersError(
        f"{counted(len(plans), 'run')} of {counted(len(inputs), 'input')} could not be read,"
        f" {inputs[0]} among them: {error.message}",
        path=error.path,
        hint=error.hint,
    )
