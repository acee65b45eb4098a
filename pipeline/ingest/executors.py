"""Parse batches with threads of this process, or with workers in other processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from tracelake.base.signals import wait_for_one
from tracelake.execution import Workers, require, work_folder
from tracelake.ingest.batches import Job, sent
from tracelake.ingest.options import Options
from tracelake.ingest.work import RunResult, ingest_batch
from tracelake.lake import part_files_at
from tracelake.lake.parquet import LANES
from tracelake.storage import is_uri

Parsed = Future[list[RunResult]]


class Progress(Protocol):
    """Receives the progress of an ingest; draws, prints or ignores it."""

    def planned(self, runs: int, files: int, weight: int) -> None:
        """Announce the runs and files to read, and their bytes as far as known."""

    def advance(self, weight: int, files: int, rejected: int) -> None:
        """Add bytes and files that are done, and rejected lines."""


class Crew(Protocol):
    """An executor that parses batches."""

    @property
    def width(self) -> int:
        """Batches that are parsed at the same time."""

    def submit(self, batch: Sequence[Job], options: Options, staging: Path) -> Parsed:
        """Submit a batch to be parsed; see `ingest_batch`."""

    def results(self, batch: Sequence[Job], parsed: Parsed) -> list[RunResult]:
        """Return the results of a batch that has ended.

        Raises:
            WorkersError: It was not parsed; others may be.
        """

    def wait(self, pending: Collection[Parsed]) -> set[Parsed]:
        """Wait until a batch has ended; return those that have.

        Raises:
            WorkersError: No worker is left.
        """

    def stop(self) -> None:
        """End running batches soon."""


class Threads:
    """Threads of this process, which report progress block by block."""

    def __init__(
        self, runner: ThreadPoolExecutor, width: int, helper: Executor, progress: Progress | None
    ) -> None:
        self.width = width
        self._runner = runner
        self._helper = helper
        self._progress = progress
        self._stop = threading.Event()

    def submit(self, batch: Sequence[Job], options: Options, staging: Path) -> Parsed:
        """See `Crew`."""
        return self._runner.submit(
            ingest_batch, batch, options, staging, self._helper, self._advance
        )

    def results(self, batch: Sequence[Job], parsed: Parsed) -> list[RunResult]:
        """See `Crew`."""
        del batch
        return parsed.result()

    def wait(self, pending: Collection[Parsed]) -> set[Parsed]:
        """See `Crew`."""
        return wait_for_one(pending)

    def stop(self) -> None:
        """See `Crew`."""
        self._stop.set()

    def _advance(self, weight: int, files: int, rejected: int) -> None:
        if self._stop.is_set():
            raise CancelledError
        if self._progress:
            self._progress.advance(weight, files, rejected)


class Elsewhere:
    """Workers in other processes, which report a batch when it has ended."""

    def __init__(self, workers: Workers, base: str, progress: Progress | None) -> None:
        self.width = workers.width
        self._base = base
        self._workers = workers
        self._progress = progress

    def submit(self, batch: Sequence[Job], options: Options, staging: Path) -> Parsed:
        """See `Crew`."""
        # The plan already has the hosts of ranks.
        shaping = replace(options, hosts=None)
        return self._workers.submit(parse_sent, sent(batch), shaping, self._base, staging)

    def results(self, batch: Sequence[Job], parsed: Parsed) -> list[RunResult]:
        """See `Crew`."""
        results: list[RunResult] = self._workers.result(parsed)
        if self._progress:
            weight = sum(p.weight for job in batch for p in job)
            files = sum(len(p.sources) for job in batch for p in job)
            rejected = sum(result.lines.rejected for result in results)
            self._progress.advance(weight, files, rejected)
        return results

    def wait(self, pending: Collection[Parsed]) -> set[Parsed]:
        """See `Crew`."""
        return self._workers.wait(pending)

    def stop(self) -> None:
        """Do nothing: workers see that the staging folder is gone."""


def parse_sent(jobs: Sequence[Job], options: Options, base: str, staging: Path) -> list[RunResult]:
    """Parse a batch in a worker's process.

    It may be called more than once for one batch, also at the same time. Parts that the command
    does not receive are removed with its staging folder, or by `gc` if the lake is in a store.
    There a worker puts the parts itself; else it shares the lake's file system.

    Args:
        base: Directory or URI of the lake.

    Raises:
        CancelledError: The command has ended.
        WorkersError: The worker does not see the files of the command.
    """
    files = part_files_at(base)
    for p in chain.from_iterable(jobs):
        for candidate in p.sources:
            if not is_uri(candidate.entry.location):
                # A missing file is a fault of the run, as in threads.
                location = Path(candidate.entry.location)
                there = location if location.exists() else location.parent
                require(there, os.R_OK, "an input")
    with (
        work_folder(staging if files.local else None) as folder,
        ThreadPoolExecutor(1 + LANES) as helper,
    ):

        def advance(weight: int, files: int, rejected: int) -> None:
            del weight, files, rejected
            if not folder.exists():
                raise CancelledError

        results = ingest_batch(jobs, options, folder, helper, advance)
        return [replace(result, staged=files.hand_in(result.staged)) for result in results]
