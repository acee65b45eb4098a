"""Submit jobs to workers in other processes, and wait for results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracelake import __version__
from tracelake.base.errors import WorkersError
from tracelake.base.metrics import add_phases
from tracelake.base.signals import wait_for_one
from tracelake.execution.jobs import Done, Order, do, versions

if TYPE_CHECKING:
    from distributed import Client

OPEN = ("running", "connecting")
"""States of a client that is connected, or may reconnect."""

_LOOK_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers in other processes; whatever a job takes and gives is pickled.

    Attributes:
        executor: The executor for jobs.
        width: Number of jobs that run at the same time.
        together: The most of them that share a machine.
        per_process: The most of them that share a process.
        client: The client of the cluster.
        patience: Seconds without any worker before that is an error.
    """

    executor: Executor
    width: int
    together: int
    per_process: int
    client: Client
    patience: float

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        """Submit a job; `result` returns its result.

        Raises:
            WorkersError: The scheduler has disappeared.
        """
        if self.client.status not in OPEN:
            raise scheduler_gone()
        return self.executor.submit(do, Order(versions(), job, args))

    def wait(self, futures: Collection[Future[Any]]) -> set[Future[Any]]:
        """Wait until one of the futures has ended; return those that have.

        Raises:
            WorkersError: There was no worker for too long.
        """
        gone_since: float | None = None
        while not (ended := wait_for_one(futures, _LOOK_SECONDS)):
            if self._any_worker():
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
            elif time.monotonic() - gone_since > self.patience:
                raise WorkersError(
                    f"there was no worker for {self.patience:.0f} s",
                    hint="start workers, then run the command again: it continues where it was",
                )
        return ended

    def _any_worker(self) -> bool:
        try:
            return bool(self.client.nthreads())
        except OSError:  # the scheduler has disappeared, which ends all futures
            return False

    def result(self, future: Future[Any]) -> Any:
        """Return the result of a job that has ended.

        Raises:
            WorkersError: The workers that took it are lost, or cannot do it.
        """
        try:
            done: Done = future.result()
        except CancelledError as error:
            raise scheduler_gone() from error
        except ImportError as error:
            raise WorkersError(
                f"a worker cannot import what it needs: {error}",
                hint=f"install tracelake {__version__} where the workers run",
            ) from error
        except _killed_worker() as error:
            raise WorkersError(
                f"each of {error.allowed_failures + 1} workers that tried it died",
                hint="look for the cause in the workers' logs, e.g. too little memory, then run the"
                " command again: it continues where it was",
            ) from error
        add_phases(done.phases)
        return done.given


def scheduler_gone() -> WorkersError:
    """Return the error for a scheduler that has disappeared."""
    return WorkersError(
        "the scheduler has disappeared",
        hint="make sure that it runs, then run the command again: it continues where it was",
    )


def _killed_worker() -> Any:
    from distributed.scheduler import KilledWorker  # noqa: PLC0415 # see dask_workers

    return KilledWorker
