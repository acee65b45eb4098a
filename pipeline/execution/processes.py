"""Run jobs by an executor whose workers are processes of this machine, started for it.

A process of `concurrent.futures` would run the user's script a second time, unless the script
guards against that, and would outlive a command that is killed. These import tracelake alone, and
end when their connection to the command does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from multiprocessing import Pipe
from typing import Any

from tracelake.base.errors import WorkersError
from tracelake.base.metrics import add_phases
from tracelake.execution.jobs import Done, Order, versions
from tracelake.kernels.compiled import tell

_WORKER = "tracelake.execution.worker"
_END_SECONDS = 5


class Processes(Executor):
    """An executor of processes; whatever a job takes and returns is pickled.

    A process starts with the first job that finds none idle. If it dies, the future of its job
    raises `WorkersError`, and the next job starts another.

    Args:
        width: Number of jobs that run at the same time.
    """

    def __init__(self, width: int) -> None:
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="processes")
        self._own = threading.local()
        self._started: set[_Process] = set()
        self._lock = threading.Lock()
        self._ended = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Submit a job, a module-level function."""
        return self._threads.submit(self._do, Order(versions(), partial(fn, **more), args))

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the processes: after an error at once, else after their jobs."""
        if kind is not None:
            self._end()
        self._threads.shutdown()
        self._end()

    def _do(self, order: Order) -> Any:
        """Send a job to this thread's process, and wait for what it gives."""
        process: _Process | None = getattr(self._own, "process", None)
        if process is None:
            process = self._own.process = self._start()
        try:
            answer = process.do(order)
        except (EOFError, OSError):
            self._own.process = None
            with self._lock:
                self._started.discard(process)
            raise WorkersError(
                f"the process that read it ended: {process.end()}",
                hint="if memory is short give --jobs 1, then run the command again: it continues"
                " where it was",
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        add_phases(answer.phases)
        return answer.given

    def _start(self) -> _Process:
        with self._lock:
            if self._ended:
                raise WorkersError("the command has ended")
            process = _Process()
            self._started.add(process)
            return process

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._started:
                process.terminate()
            for process in self._started:
                process.end()


class _Process:
    """A process and the connection to it."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            # In a group of its own: a terminal's Ctrl-C is for the command, which ends it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def do(self, order: Order) -> Done | BaseException:
        """Return the result or the error of a job.

        Raises:
            EOFError, OSError: The process has ended.
        """
        self._connection.send(order)
        while isinstance(answer := self._connection.recv(), str):
            tell(answer)
        given: Done | BaseException = answer
        return given

    def terminate(self) -> None:
        self._process.terminate()

    def end(self) -> str:
        """Wait until the process has ended, and return how."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
