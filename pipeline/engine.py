"""Where jobs run when it is not in this process: workers of a Dask cluster.

Who gives a worker which job, again if it is lost, is distributed's affair, and so is all that they
say to each other. Here a cluster is joined or started, and what goes wrong in it is told.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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

if TYPE_CHECKING:
    from distributed import Client

# Whose versions decide what a part file has in it, byte for byte, and what a model computes.
_LIBRARIES = ("duckdb", "numpy", "polars", "pyarrow")
_FIRST_WORKER_SECONDS = 600
_CONNECT_SECONDS = 30
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
    """

    executor: Executor
    width: int
    together: int
    per_process: int

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        """Has a job done; `result` has what it gave."""
        return self.executor.submit(_do, _Order(_versions(), job, args))

    def result(self, future: Future[Any]) -> Any:
        """What a job gave, once it has ended.

        Raises:
            WorkersError: The workers that took it are lost, or cannot do it.
        """
        try:
            done: _Done = future.result()
        except CancelledError as error:
            raise WorkersError(
                "the scheduler is gone",
                hint="see that it runs, then give the command again: it goes on where it was",
            ) from error
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


@contextmanager
def work_folder(staging: Path | None) -> Iterator[Path]:
    """A folder of its own for a job in a worker: it may be done twice, also at the same time.

    Args:
        staging: The driver's private folder, which goes with all in it when the driver ends; None
            where the worker does not see it and hands in what it made while it has its folder.

    Raises:
        WorkersError: The worker does not see it.
    """
    if staging is None:
        with tempfile.TemporaryDirectory(prefix="tracelake-batch-") as folder:
            yield Path(folder)
        return
    require(staging, os.W_OK, "the lake")
    yield Path(tempfile.mkdtemp(prefix="batch-", dir=staging))


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
        import distributed  # noqa: PLC0415 # takes half a second, and may not be there
    except ImportError:
        raise UsageError(
            "--engine dask needs distributed", hint="pip install 'tracelake[dask]'"
        ) from None
    with ExitStack() as opened:
        opened.enter_context(_quietly())
        address: Any = scheduler
        if scheduler is None:
            address = opened.enter_context(_local_cluster(workers))
        try:
            client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no scheduler answers at {scheduler}: {error}",
                hint="give --scheduler as tcp://HOST:8786, as dask scheduler prints it",
            ) from error
        opened.callback(client.close, timeout=_CLOSE_SECONDS)
        executor = client.get_executor(pure=False)
        opened.callback(executor.shutdown, wait=False)
        yield _joined(client, executor)


def _joined(client: Client, executor: Executor) -> Workers:
    try:
        client.wait_for_workers(1, timeout=_FIRST_WORKER_SECONDS)
        threads = client.nthreads()
        told = client.run(_versions, on_error="return")
    except TimeoutError as error:
        raise WorkersError(
            f"no worker came within {_FIRST_WORKER_SECONDS // 60} minutes",
            hint="start workers for this scheduler, then give the command again",
        ) from error
    for worker, versions in told.items():
        if isinstance(versions, ImportError):
            raise WorkersError(
                f"the worker {worker} cannot import what it needs: {versions}",
                hint=f"install tracelake {__version__} where the workers run",
            )
        if isinstance(versions, BaseException):
            raise WorkersError(f"the worker {worker} does not work: {versions}")
        _compare(versions, _versions(), worker)
    by_host: Counter[str] = Counter()
    for worker, count in threads.items():
        by_host[worker.rpartition(":")[0]] += count
    together, per_process = max(by_host.values()), max(threads.values())
    return Workers(executor, sum(threads.values()), together, per_process)


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
        host="127.0.0.1",
        protocol="tcp",
        dashboard_address=None,
        memory_limit=0,  # a job bounds its own memory, and is not to be killed for that
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster


@contextmanager
def _quietly() -> Iterator[None]:
    """What distributed logs of lost workers is told as an error, or was made up for."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _killed_worker() -> Any:
    from distributed.scheduler import KilledWorker  # noqa: PLC0415 # see dask_workers

    return KilledWorker
