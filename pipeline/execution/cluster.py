"""Run jobs by an executor whose workers are a Dask cluster, joined or started on this machine."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tracelake import __version__
from tracelake.base.errors import UsageError, WorkersError
from tracelake.base.memory_limit import processors
from tracelake.base.metrics import add_phases
from tracelake.execution.jobs import Done, Order, compare, do, versions

if TYPE_CHECKING:
    from distributed import Client

# States of a client that is connected, or may reconnect.
_OPEN = ("running", "connecting")
_LOOK_SECONDS = 5
_LARGE_WARNING = "distributed.admin.large-graph-warning-threshold"
_LOOPBACK = "127.0.0.1:0"
_CONNECT_SECONDS = 10
# Time to close the connection; work that continues after it ends by itself.
_CLOSE_SECONDS = 5


@dataclass(frozen=True, eq=False)
class Workers(Executor):
    """An executor of workers in other processes; whatever a job takes and returns is pickled.

    Futures raise `WorkersError` if the workers that took a job are lost, or cannot do it.

    Attributes:
        executor: The executor of the cluster's client.
        width: Number of jobs that run at the same time.
        together: The most of them that share a machine.
        per_process: The most of them that share a process.
        patience: Seconds without any worker before that is an error.
    """

    executor: Executor
    width: int
    together: int
    per_process: int
    client: Client
    patience: float
    _pending: set[Future[Any]] = field(default_factory=set)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Submit a job, a module-level function.

        Raises:
            WorkersError: The scheduler has disappeared.
        """
        if self.client.status not in _OPEN:
            raise _scheduler_gone()
        sent = self.executor.submit(do, Order(versions(), partial(fn, **more), args))
        future: Future[Any] = Future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        future.add_done_callback(lambda ended: ended.cancelled() and sent.cancel())
        sent.add_done_callback(partial(_settle, future))
        return future

    def watch(self, stop: threading.Event) -> None:
        """Let all futures fail when there was no worker for too long."""
        gone_since: float | None = None
        while not stop.wait(_LOOK_SECONDS):
            if not self._pending or self._any_worker():
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
            elif time.monotonic() - gone_since > self.patience:
                error = WorkersError(
                    f"there was no worker for {self.patience:.0f} s",
                    hint="start workers, then run the command again: it continues where it was",
                )
                for future in list(self._pending):
                    with suppress(InvalidStateError):
                        future.set_exception(error)

    def _any_worker(self) -> bool:
        try:
            return bool(self.client.nthreads())
        except OSError:  # the scheduler has disappeared, which ends all futures
            return False


def _settle(future: Future[Any], sent: Future[Done]) -> None:
    """End the future of a job as its work has ended in the cluster."""
    error = CancelledError() if sent.cancelled() else sent.exception()
    with suppress(InvalidStateError):  # cancelled, or given up
        if error is not None:
            future.set_exception(_explained(error))
            return
        done = sent.result()
        add_phases(done.phases)
        future.set_result(done.given)


def _explained(error: BaseException) -> BaseException:
    """Return the error of a job; an error of the cluster as one that says what to do."""
    from distributed.scheduler import KilledWorker  # noqa: PLC0415 # see dask_workers

    if isinstance(error, CancelledError):
        return _scheduler_gone()
    if isinstance(error, ImportError):
        return WorkersError(
            f"a worker cannot import what it needs: {error}",
            hint=f"install tracelake {__version__} where the workers run",
        )
    if isinstance(error, KilledWorker):
        return WorkersError(
            f"each of {error.allowed_failures + 1} workers that tried it died",
            hint="look for the cause in the workers' logs, e.g. too little memory, then run the"
            " command again: it continues where it was",
        )
    return error


def _scheduler_gone() -> WorkersError:
    return WorkersError(
        "the scheduler has disappeared",
        hint="make sure that it runs, then run the command again: it continues where it was",
    )


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
        workers_there = _joined(client, executor, patience)
        stop = threading.Event()
        opened.callback(stop.set)
        threading.Thread(target=workers_there.watch, args=(stop,), daemon=True).start()
        yield workers_there


def _leave(client: Client, executor: Executor) -> None:
    """Cancel unfinished jobs if the scheduler still answers."""
    if client.status in _OPEN:
        executor.shutdown(wait=False)


def _joined(client: Client, executor: Executor, patience: float) -> Workers:
    try:
        client.wait_for_workers(1, timeout=patience)
        threads = client.nthreads()
        found = client.run(versions, on_error="return")
    except TimeoutError as error:
        raise WorkersError(
            f"no worker connected within {patience:.0f} s",
            hint="start workers for this scheduler, then run the command again",
        ) from error
    except OSError as error:
        raise _scheduler_gone() from error
    for worker, theirs in found.items():
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
