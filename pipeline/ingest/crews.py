"""Who parses batches: threads of this process, or workers in others."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from pipeline.engine import Workers, require, work_folder
from pipeline.ingest.batches import Job, sent
from pipeline.ingest.options import Options
from pipeline.ingest.work import RunResult, ingest_batch
from pipeline.lake import part_files_at
from pipeline.parts import LANES
from pipeline.stores import is_uri
from pipeline.waiting import wait_for_one

Parsed = Future[list[RunResult]]


class Progress(Protocol):
    """Told what an ingest is doing; draws, prints or ignores it."""

    def planned(self, runs: int, files: int, weight: int) -> None:
        """So many runs of so many files are to be read, of so many bytes as far as known."""

    def advance(self, weight: int, files: int, rejected: int) -> None:
        """So many more of these bytes and files have been dealt with, and lines rejected."""


class Crew(Protocol):
    """Parses batches."""

    @property
    def width(self) -> int:
        """Batches that are parsed at the same time."""

    def submit(self, batch: Sequence[Job], options: Options, staging: Path) -> Parsed:
        """Has a batch parsed; see `ingest_batch`."""

    def results(self, batch: Sequence[Job], parsed: Parsed) -> list[RunResult]:
        """What a batch gave, once it has ended.

        Raises:
            WorkersError: It was not parsed; others may be.
        """

    def wait(self, pending: Collection[Parsed]) -> set[Parsed]:
        """Waits until a batch has ended; returns those that have.

        Raises:
            WorkersError: There is nobody left who could.
        """

    def stop(self) -> None:
        """Ends what is under way, soon."""


class Threads:
    """Threads of this process, which tell how far they are block by block."""

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
    """Workers in other processes, which tell of a batch when it has ended."""

    def __init__(self, workers: Workers, base: str, progress: Progress | None) -> None:
        self.width = workers.width
        self._base = base
        self._workers = workers
        self._progress = progress

    def submit(self, batch: Sequence[Job], options: Options, staging: Path) -> Parsed:
        """See `Crew`."""
        # Where ranks ran is in the plan already.
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
        """They see that the staging folder is gone."""


def parse_sent(jobs: Sequence[Job], options: Options, base: str, staging: Path) -> list[RunResult]:
    """Parses a batch in a worker's process: all that a worker does for an ingest.

    It may be called more than once for one batch, also at the same time; parts that the driver
    hears nothing of go with its staging folder, or are collected as garbage where the lake is in a
    store. There a worker puts the parts itself; else it shares the lake's file system.

    Args:
        base: Directory or URI of the lake.

    Raises:
        CancelledError: The driver has ended.
        WorkersError: The worker does not see what the driver sees.
    """
    files = part_files_at(base)
    for p in chain.from_iterable(jobs):
        for candidate in p.sources:
            if not is_uri(candidate.entry.location):
                # A file that is gone is a fault of the run, as it is everywhere.
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
