"""Signals that are always heard, and waiting that they always end.

Python acts on a signal in the main thread alone, by raising an exception wherever that stands. Two
things get in the way: the system may hand the signal to another thread while the main thread sleeps
in a system call, and the exception may come where it is dropped (in a finaliser, in a callback from
C) or made into another one (DuckDB). So a thread of its own repeats a signal until it has ended the
command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

# The main thread never sleeps for longer, for it may not be the one that a signal wakes.
_SLEEP = 0.2
_LONGEST_PAUSE = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


def wait_for_one(futures: Iterable[Future[_T]], seconds: float | None = None) -> set[Future[_T]]:
    """Waits until one of the futures has ended, or for so long.

    Returns:
        Those that have ended; none if the time is over.
    """
    pending = set(futures)
    ends = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _SLEEP if ends is None else min(_SLEEP, max(0.0, ends - time.monotonic()))
        done = wait(pending, left, FIRST_COMPLETED).done
        if done or (ends is not None and time.monotonic() >= ends):
            return done


class _Ear:
    """Hears the signals that end a command.

    Attributes:
        signum: The first that came, if any.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._raised: list[BaseException] = []
        self._settled = threading.Event()

    def hear(self, signum: int, frame: FrameType | None) -> None:
        """Raises the end of the command, unless that is under way."""
        del frame
        self.signum = self.signum or signum
        if not self._settled.is_set() and not self._is_ending():
            raise self.end()

    def end(self) -> BaseException:
        """What ends the command."""
        assert self.signum is not None
        ends = KeyboardInterrupt() if self.signum == signal.SIGINT else SystemExit(self.exit_code)
        self._raised.append(ends)
        return ends

    @property
    def exit_code(self) -> int:
        """As a shell has it of a program that a signal ended."""
        return 128 + (self.signum or 0)

    def settle(self) -> None:
        """The end has come to where it is told; from here on signals are not repeated."""
        self._settled.set()

    def _is_ending(self) -> bool:
        """Whether clean-up for an end that was raised is at work in the main thread."""
        error = sys.exception()
        while error is not None:
            if any(error is known for known in self._raised):
                return True
            error = error.__cause__ or error.__context__
        return False

    def repeat(self, pipe: int) -> None:
        """Sends the main thread every signal again that comes through the pipe, until it is heard.

        A byte that is no such signal ends this.
        """
        main = threading.main_thread().ident
        assert main is not None
        while (signum := os.read(pipe, 1)[0]) in _SIGNALS:
            pause = _SLEEP
            while not self._settled.wait(pause):
                signal.pthread_kill(main, signum)
                pause = min(2 * pause, _LONGEST_PAUSE)


_ears: list[_Ear] = []


@contextmanager
def listening() -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM raise what ends the command until it has ended.

    To be entered by the main thread.
    """
    ear = _Ear()
    comes, goes = os.pipe()
    os.set_blocking(goes, False)
    handlers = {signum: signal.signal(signum, ear.hear) for signum in _SIGNALS}
    before = signal.set_wakeup_fd(goes, warn_on_full_buffer=False)
    thread = threading.Thread(target=ear.repeat, args=(comes,), name="signals", daemon=True)
    thread.start()
    _ears.append(ear)
    try:
        yield
    finally:
        ear.settle()
        _ears.remove(ear)
        signal.set_wakeup_fd(before)
        os.write(goes, b"\0")
        thread.join()
        # Last: a signal that the thread was about to repeat is for the ear alone.
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        os.close(comes)
        os.close(goes)


def settled() -> int | None:
    """Exit code of a command that a signal ends, now that it has come to its end; None else."""
    if not _ears or _ears[-1].signum is None:
        return None
    _ears[-1].settle()
    return _ears[-1].exit_code


def raise_if_ending(cause: BaseException) -> None:
    """Raises what ends the command again, where an error has taken its place."""
    if _ears and _ears[-1].signum is not None:
        raise _ears[-1].end() from cause
