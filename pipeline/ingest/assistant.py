"""Sniff files with a second process beside this one.

Opening and sniffing a file is mostly Python code, of which a process runs one thread at a time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn, Self

from tracelake.base.memory_limit import processors
from tracelake.formats import Format, formats
from tracelake.ingest.sniff import Judged, judge_file, plain_verdicts, verdicts_of
from tracelake.inputs.streams import FileRef

MANY = 256
"""Files that are worth sharing."""

# Its share in tenths: this process finds the next files meanwhile.
_SHARE = 7
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Errors after the process has died: a closed pipe, or half an answer.
_GONE = (OSError, ValueError)


class Assistant:
    """Sniffs files with a forked copy of this process, which starts when there are many files.

    The copy only reads files and answers: it opens nothing to write and starts no thread. If it
    cannot start or dies, this process sniffs alone, with the same result.
    """

    def __init__(self, forced: Format | None) -> None:
        self._forced = forced
        self._calls = 0
        self._pid = 0
        self._asks: IO[bytes] | None = None
        self._answers: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def judge(self, entries: Sequence[FileRef]) -> Callable[[], list[Judged | None]]:
        """Sniff files as `judge_file` does; the copy gets its share.

        Returns:
            A function that waits for the copy and returns all verdicts; call it before the next
            call.
        """
        share = entries[: len(entries) * _SHARE // 10] if self._is_ready(len(entries)) else ()
        asked = bool(share) and self._ask(share)
        own = [judge_file(entry, self._forced) for entry in entries[len(share) :]]
        return lambda: [*self._answer(share, asked=asked), *own]

    def _is_ready(self, files: int) -> bool:
        """Return whether there is a copy; it is forked at the second block with many files."""
        if files < MANY:
            return False
        self._calls += 1
        if self._calls == 2 and sys.platform == "linux" and processors() > 1:
            self._begin()
        return self._pid > 0

    def _ask(self, entries: Sequence[FileRef]) -> bool:
        assert self._asks
        try:
            _send(self._asks, entries)
        except _GONE:
            self._end()
            return False
        return True

    def _answer(self, entries: Sequence[FileRef], *, asked: bool) -> list[Judged | None]:
        if asked:
            assert self._answers
            try:
                return verdicts_of(json.loads(self._answers.readline()), entries)
            except _GONE:
                self._end()
        return [judge_file(entry, self._forced) for entry in entries]

    def _begin(self) -> None:
        formats()  # imported once, here
        theirs, ours = os.pipe(), os.pipe()
        # Block signals until the copy has its own handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            with warnings.catch_warnings():
                # Python warns about other threads: the copy uses no lock that they could hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                with contextlib.suppress(OSError):  # the system allows no further process
                    self._pid = os.fork() or self._serve(theirs, ours)
        finally:
            self._asks, self._answers = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
            os.close(theirs[0])
            os.close(ours[1])
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _serve(self, asks: tuple[int, int], answers: tuple[int, int]) -> NoReturn:
        """Run the copy until its end; the other process then continues alone."""
        try:
            gc.disable()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(asks[1])  # so that it ends when the other process ends
            os.close(answers[0])
            with os.fdopen(asks[0], "rb") as asked, os.fdopen(answers[1], "wb") as answered:
                for line in asked:
                    entries = map(FileRef._make, json.loads(line))
                    verdicts = [judge_file(entry, self._forced) for entry in entries]
                    _send(answered, plain_verdicts(verdicts))
        finally:
            os._exit(0)

    def _end(self) -> None:
        pid, self._pid = self._pid, 0
        if pid:
            # If the parent ignores SIGCHLD, there is no process to wait for.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for pipe in filter(None, (self._asks, self._answers)):
            with contextlib.suppress(OSError):  # unsent data is useless
                pipe.close()
        self._asks = self._answers = None


def _send(pipe: IO[bytes], values: Any) -> None:
    pipe.write(json.dumps(values).encode() + b"\n")
    pipe.flush()
