"""A Dask cluster that is joined, or started on this machine for as long as a command takes."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pipeline import __version__
from pipeline.budget import processors
from pipeline.engine.jobs import compare, versions
from pipeline.engine.workers import OPEN, Workers, scheduler_gone
from pipeline.errors import UsageError, WorkersError

if TYPE_CHECKING:
    from distributed import Client

_LARGE_WARNING = "distributed.admin.large-graph-warning-threshold"
_LOOPBACK = "127.0.0.1:0"
_CONNECT_SECONDS = 10
# To say good-bye: what is still at work then is left to end by itself.
_CLOSE_SECONDS = 5


@contextmanager
def dask_workers(
    scheduler: str | None, workers: int | None, *, patience: float = 600
) -> Iterator[Workers]:
    """Workers of a cluster, which is joined, or started on this machine and ended afterwards.

    Args:
        scheduler: Address of the cluster to be joined.
        workers: How many are started here; one per processor without either.
        patience: Seconds that a worker may take to come, in the queue of a batch system for one.

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
        yield _joined(client, executor, patience)


def _leave(client: Client, executor: Executor) -> None:
    """Gives up what is not done, if there is somebody to be told."""
    if client.status in OPEN:
        executor.shutdown(wait=False)


def _joined(client: Client, executor: Executor, patience: float) -> Workers:
    try:
        client.wait_for_workers(1, timeout=patience)
        threads = client.nthreads()
        told = client.run(versions, on_error="return")
    except TimeoutError as error:
        raise WorkersError(
            f"no worker came within {patience:.0f} s",
            hint="start workers for this scheduler, then give the command again",
        ) from error
    except OSError as error:
        raise scheduler_gone() from error
    for worker, theirs in told.items():
        if isinstance(theirs, BaseException):
            raise WorkersError(
                f"the worker {worker} cannot do its work: {theirs}",
                hint=f"install tracelake {__version__} where the workers run",
            )
        compare(theirs, versions(), worker)
    by_host: Counter[str] = Counter()
    for worker, count in threads.items():
        by_host[worker.rpartition(":")[0]] += count
    together, per_process = max(by_host.values()), max(threads.values())
    return Workers(executor, sum(threads.values()), together, per_process, client, patience)


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
