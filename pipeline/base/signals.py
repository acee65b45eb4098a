"""Handle signals so that they always end the command, also while it waits.

Python acts on a signal in the main thread only, by raising an exception wherever that thread is.
Two things can go wrong: the system may deliver the signal to another thread while the main thread
sleeps in a system call, and the exception may be dropped (in a finaliser, in a callback from C) or
turned into another one (DuckDB). So a separate thread repeats a signal until it has ended the
command.

Some calls of a library cannot be interrupted. A thread that is in such a call is abandoned: the
command goes on to its end, and then ends the process without waiting for the thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

# The main thread never sleeps longer, because a signal may wake another thread.
_SLEEP = 0.2
_LONGEST_PAUSE = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_T = TypeVar("_T")


def wait_for_one(futures: Iterable[Future[_T]], seconds: float | None = None) -> set[Future[_T]]:
    """Wait until one of the futures has ended, or until the time is over.

    Returns:
        The futures that have ended; none if the time is over.
    """
    pending = set(futures)
    ends = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _SLEEP if ends is None else min(_SLEEP, max(0.0, ends - time.monotonic()))
        done = wait(pending, left, FIRST_COMPLETED).done
        if done or (ends is not None and time.monotonic() >= ends):
            return done


def stop_all(futures: Collection[Future[_T]], stop: Callable[[], object]) -> None:
    """Call `stop` again and again until all futures have ended.

    A thread may be between two calls that it interrupts.
    """
    while not all(future.done() for future in futures):
        stop()
        wait(futures, 0.1)


class _Signals:
    """Receives the signals that end a command.

    Attributes:
        signum: The first signal that arrived, if any.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._raised: list[BaseException] = []
        self._settled = threading.Event()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Raise the exception that ends the command, unless that is in progress."""
        del frame
        self.signum = self.signum or signum
        if not self._settled.is_set() and not self._is_ending():
            raise self.end()

    def end(self) -> BaseException:
        """Return the exception that ends the command."""
        assert self.signum is not None
        ends = KeyboardInterrupt() if self.signum == signal.SIGINT else SystemExit(self.exit_code)
        self._raised.append(ends)
        return ends

    @property
    def exit_code(self) -> int:
        """Exit code that a shell reports for a program ended by this signal."""
        return 128 + (self.signum or 0)

    def settle(self) -> None:
        """Stop repeating signals: the command has reached its end."""
        self._settled.set()

    def _is_ending(self) -> bool:
        """Return whether the main thread is cleaning up after a raised signal."""
        error = sys.exception()
        while error is not None:
            if any(error is known for known in self._raised):
                return True
            error = error.__cause__ or error.__context__
        return False

    def repeat(self, pipe: int) -> None:
        """Send the main thread every signal from the pipe again until the command ends.

        Any other byte ends this.
        """
        main = threading.main_thread().ident
        assert main is not None
        while (signum := os.read(pipe, 1)[0]) in _SIGNALS:
            pause = _SLEEP
            while not self._settled.wait(pause):
                signal.pthread_kill(main, signum)
                pause = min(2 * pause, _LONGEST_PAUSE)


_handlers: list[_Signals] = []


@contextmanager
def listening() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the command until the context exits.

    The main thread must enter it. SIGHUP stays ignored if it is, as under `nohup`.
    """
    signals = _Signals()
    comes, goes = os.pipe()
    os.set_blocking(goes, False)
    handled = [s for s in _SIGNALS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN]
    handlers = {signum: signal.signal(signum, signals.handle) for signum in handled}
    before = signal.set_wakeup_fd(goes, warn_on_full_buffer=False)
    thread = threading.Thread(target=signals.repeat, args=(comes,), name="signals", daemon=True)
    thread.start()
    _handlers.append(signals)
    try:
        yield
    finally:
        signals.settle()
        _handlers.remove(signals)
        signal.set_wakeup_fd(before)
        os.write(goes, b"\0")
        thread.join()
        # Last: a signal that the thread was about to repeat must only set the attribute.
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        os.close(comes)
        os.close(goes)


def settled() -> int | None:
    """Return the exit code if a signal ends the command, and stop repeating signals; else None."""
    if not _handlers or _handlers[-1].signum is None:
        return None
    _handlers[-1].settle()
    return _handlers[-1].exit_code


def raise_if_ending(cause: BaseException) -> None:
    """Raise the end of the command again if an error has replaced it."""
    if _handlers and _handlers[-1].signum is not None:
        raise _handlers[-1].end() from cause


# --- calls that do not end ----------------------------------------------------------------------

_abandoned: list[tuple[Future[Any], Callable[[], object]]] = []


def abandon(work: Future[Any], release: Callable[[], object]) -> None:
    """Note that a thread is in a call that does not end.

    Args:
        release: Removes what the call leaves behind, when the process ends.
    """
    _abandoned.append((work, release))


def end_if_abandoned(exit_code: int) -> None:
    """End the process if an abandoned thread still works: Python would wait for that thread."""
    releases = [release for work, release in _abandoned if not work.done()]
    if not releases:
        return
    for release in releases:
        release()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(exit_code)
