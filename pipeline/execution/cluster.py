"""Join a Dask cluster, or start one on this machine for the duration of a command."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tracelake import __version__
from tracelake.base.errors import UsageError, WorkersError
from tracelake.base.memory_limit import processors
from tracelake.execution.jobs import compare, versions
from tracelake.execution.workers import OPEN, Workers, scheduler_gone

if TYPE_CHECKING:
    from distributed import Client

_LARGE_WARNING = "distributed.admin.large-graph-warning-threshold"
_LOOPBACK = "127.0.0.1:0"
_CONNECT_SECONDS = 10
# Time to close the connection; work that continues after it ends by itself.
_CLOSE_SECONDS = 5


@contextmanager
def dask_workers(
    scheduler: str | None, workers: int | None, *, patience: float = 600
) -> Iterator[Workers]:
    """Yield the workers of a cluster that is joined, or started here and stopped afterwards.

    Args:
        scheduler: Address of the cluster to be joined.
        workers: Number of workers to start here; one per processor without either.
        patience: Seconds to wait for a worker, e.g. while it is queued in a batch system.

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
        # Lost workers are reported as an error, or were replaced.
        opened.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
        # The plan of a run of many files is large; distributed need not warn of it.
        opened.enter_context(dask.config.set({_LARGE_WARNING: "1TB"}))
        address: Any = scheduler
        if scheduler is None:
            address = opened.enter_context(_local_cluster(workers))
        try:
            if scheduler is not None:  # check the address first: the client does not fail cleanly
                distributed.comm.resolve_address(scheduler)
            client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no scheduler answers at {scheduler}",
                hint="use the address that dask scheduler prints, like tcp://HOST:8786",
            ) from error
        opened.callback(client.close, timeout=_CLOSE_SECONDS)
        executor = client.get_executor(pure=False)
        opened.callback(_leave, client, executor)
        yield _joined(client, executor, patience)


def _leave(client: Client, executor: Executor) -> None:
    """Cancel unfinished jobs if the scheduler still answers."""
    if client.status in OPEN:
        executor.shutdown(wait=False)


def _joined(client: Client, executor: Executor, patience: float) -> Workers:
    try:
        client.wait_for_workers(1, timeout=patience)
        threads = client.nthreads()
        told = client.run(versions, on_error="return")
    except TimeoutError as error:
        raise WorkersError(
            f"no worker connected within {patience:.0f} s",
            hint="start workers for this scheduler, then run the command again",
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
    """Yield a local cluster that only this machine can reach; each worker has one thread."""
    from distributed import LocalCluster  # noqa: PLC0415 # see dask_workers

    with LocalCluster(
        n_workers=workers or processors(),
        threads_per_worker=1,
        processes=True,
        host=_LOOPBACK.partition(":")[0],
        protocol="tcp",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": _LOOPBACK},  # dask always starts its metrics server
        worker_dashboard_address=_LOOPBACK,
        memory_limit=0,  # a job limits its own memory; dask must not kill it for that
        silence_logs=logging.CRITICAL,
        preload=[__name__],
    ) as cluster:
        yield cluster


def dask_setup(worker: object) -> None:
    """Make a worker of a local cluster ignore signals of the terminal; the command stops it."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
