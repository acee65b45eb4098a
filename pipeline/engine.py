"""Where jobs run when it is not in this process: workers of a Dask cluster.

Who gives a worker which job, again if it is lost, is distributed's affair, and so is all that they
say to each other. Here a cluster is joined or started, and what goes wrong in it is told.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.budget import processors
from pipeline.errors import UsageError, WorkersError
from pipeline.measures import Measures, add_phases, listen, take_phases
from pipeline.waiting import wait_for_one

if TYPE_CHECKING:
    from distributed import Client

# Whose versions decide what a part file has in it, byte for byte, and what a model computes.
_LIBRARIES = ("duckdb", "numpy", "polars", "pyarrow")
# For workers to come, in the queue of a batch system for one.
PATIENCE_SECONDS = 600
_LOOK_SECONDS = 5
_OPEN = ("running", "connecting")  # of a client's status
_LARGE_WARNING = "distributed.admin.large-graph-warning-threshold"
_LOOPBACK = "127.0.0.1:0"
_CONNECT_SECONDS = 10
# To say good-bye: what is still at work then is left to end by itself.
_CLOSE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class _Order:
    """A job on its way: one thing for distributed, which would look into tuples and lists.

    Attributes:
        versions: Of the process that has sent it.
    """

    versions: Mapping[str, str]
    job: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Done:
    """What a job gave, and nanoseconds by phase."""

    given: Any
    phases: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers in other processes; whatever a job takes and gives is pickled.

    Attributes:
        executor: Jobs are submitted to.
        width: Jobs that run at the same time.
        together: Those of them that share a machine, at most.
        per_process: Those of them that share a process, at most.
        client: Of the cluster.
    """

    executor: Executor
    width: int
    together: int
    per_process: int
    client: Client

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        """Has a job done; `result` has what it gave.

        Raises:
            WorkersError: The scheduler is gone.
        """
        if self.client.status not in _OPEN:
            raise _scheduler_gone()
        return self.executor.submit(_do, _Order(_versions(), job, args))

    def wait(self, futures: Collection[Future[Any]]) -> set[Future[Any]]:
        """Waits until one of the futures has ended; returns those that have.

        Raises:
            WorkersError: There was no worker for long.
        """
        gone_since: float | None = None
        while not (ended := wait_for_one(futures, _LOOK_SECONDS)):
            if self._any_worker():
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
            elif time.monotonic() - gone_since > PATIENCE_SECONDS:
                raise WorkersError(
                    f"there was no worker for {PATIENCE_SECONDS} s",
                    hint="start workers, then give the command again: it goes on where it was",
                )
        return ended

    def _any_worker(self) -> bool:
        try:
            return bool(self.client.nthreads())
        except OSError:  # the scheduler is gone, which ends all futures
            return False

    def result(self, future: Future[Any]) -> Any:
        """What a job gave, once it has ended.

        Raises:
            WorkersError: The workers that took it are lost, or cannot do it.
        """
        try:
            done: _Done = future.result()
        except CancelledError as error:
            raise _scheduler_gone() from error
        except ImportError as error:
            raise WorkersError(
                f"a worker cannot import what it needs: {error}",
                hint=f"install tracelake {__version__} where the workers run",
            ) from error
        except _killed_worker() as error:
            raise WorkersError(
                f"each of {error.allowed_failures + 1} workers that tried it died",
                hint="look for the cause in the workers' logs, memory for one, then give the"
                " command again: it goes on where it was",
            ) from error
        add_phases(done.phases)
        return done.given


def folder_of_attempt(staging: Path) -> Path:
    """A folder of its own for a job in a worker: it may be done twice, also at the same time.

    Args:
        staging: The driver's private folder, which goes with all in it when the driver ends.

    Raises:
        WorkersError: The worker does not see it.
    """
    require(staging, os.W_OK, "the lake")
    return Path(tempfile.mkdtemp(prefix="batch-", dir=staging))


def require(path: Path, mode: int, what: str) -> None:
    """Makes sure that a worker sees what the driver sees.

    Args:
        mode: As `os.access` has it.

    Raises:
        WorkersError: It does not.
    """
    if not os.access(path, mode):
        raise WorkersError(
            f"a worker on {platform.node()} cannot use {what}",
            path=path,
            hint="workers need the inputs and the lake under the same paths, as the same user",
        )


@contextmanager
def dask_workers(scheduler: str | None, workers: int | None) -> Iterator[Workers]:
    """Workers of a cluster, which is joined, or started on this machine and ended afterwards.

    Args:
        scheduler: Address of the cluster to be joined.
        workers: How many are started here; one per processor without either.

    Raises:
        UsageError: distributed is not installed, or there is no cluster at the address.
        WorkersError: No worker came, or one is of another version.
    """
    try:
        import dask  # noqa: PLC0415 # takes half a second, and may not be there
        import distributed  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "--engine dask needs distributed", hint="pip install 'tracelake[dask]'"
        ) from None
    with ExitStack() as opened:
        # Workers that were lost are told as an error, or were made up for.
        opened.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
        # A run of many files is a plan of many bytes, which is no mistake.
        opened.enter_context(dask.config.set({_LARGE_WARNING: "1TB"}))
        address: Any = scheduler
        if scheduler is None:
            address = opened.enter_context(_local_cluster(workers))
        try:
            if scheduler is not None:  # a client that is given nonsense does not end well
                distributed.comm.resolve_address(scheduler)
            client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no scheduler answers at {scheduler}",
                hint="give --scheduler as tcp://HOST:8786, as dask scheduler prints it",
            ) from error
        opened.callback(client.close, timeout=_CLOSE_SECONDS)
        executor = client.get_executor(pure=False)
        opened.callback(_leave, client, executor)
        yield _joined(client, executor)


def _leave(client: Client, executor: Executor) -> None:
    """Gives up what is not done, if there is somebody to be told."""
    if client.status in _OPEN:
        executor.shutdown(wait=False)


def _joined(client: Client, executor: Executor) -> Workers:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        threads = client.nthreads()
        told = client.run(_versions, on_error="return")
    except TimeoutError as error:
        raise WorkersError(
            f"no worker came within {PATIENCE_SECONDS} s",
            hint="start workers for this scheduler, then give the command again",
        ) from error
    except OSError as error:
        raise _scheduler_gone() from error
    for worker, versions in told.items():
        if isinstance(versions, BaseException):
            raise WorkersError(
                f"the worker {worker} cannot do its work: {versions}",
                hint=f"install tracelake {__version__} where the workers run",
            )
        _compare(versions, _versions(), worker)
    by_host: Counter[str] = Counter()
    for worker, count in threads.items():
        by_host[worker.rpartition(":")[0]] += count
    together, per_process = max(by_host.values()), max(threads.values())
    return Workers(executor, sum(threads.values()), together, per_process, client)


def _scheduler_gone() -> WorkersError:
    return WorkersError(
        "the scheduler is gone",
        hint="see that it runs, then give the command again: it goes on where it was",
    )


def _do(order: _Order) -> _Done:
    """Does a job where it was sent; the worker may have come after the others were asked."""
    _compare(_versions(), order.versions, platform.node())
    measures = _measures()
    given = order.job(*order.args)
    return _Done(given, take_phases(measures))


@functools.cache
def _measures() -> Measures:
    """Of this process, as long as it lives: jobs that run at the same time share its phases."""
    return listen()


@functools.cache
def _versions() -> dict[str, str]:
    """What results depend on in this process."""
    return {
        "tracelake": __version__,
        **{name: metadata.version(name) for name in _LIBRARIES},
        "byte order": sys.byteorder,
    }


def _compare(theirs: Mapping[str, str], ours: Mapping[str, str], worker: str) -> None:
    if theirs != ours:
        name = next(name for name in ours if theirs.get(name) != ours[name])
        raise WorkersError(
            f"the worker {worker} has {name} {theirs.get(name)}, the command {ours[name]}",
            hint="install the same versions where the workers run; constraints.txt pins them",
        )


@contextmanager
def _local_cluster(workers: int | None) -> Iterator[Any]:
    """A cluster on this machine, reached by none but it: a process with one thread per worker."""
    from distributed import LocalCluster  # noqa: PLC0415 # see dask_workers

    with LocalCluster(
        n_workers=workers or processors(),
        threads_per_worker=1,
        processes=True,
        host=_LOOPBACK.partition(":")[0],
        protocol="tcp",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": _LOOPBACK},  # its metrics, which it always serves
        worker_dashboard_address=_LOOPBACK,
        memory_limit=0,  # a job bounds its own memory, and is not to be killed for that
        silence_logs=logging.CRITICAL,
        preload=[__name__],
    ) as cluster:
        yield cluster


def dask_setup(worker: object) -> None:
    """Called by a worker of a cluster of our own: Ctrl-C is for the command, which ends it."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _killed_worker() -> Any:
    from distributed.scheduler import KilledWorker  # noqa: PLC0415 # see dask_workers

    return KilledWorker
