"""A second process that judges files beside this one.

To open and judge a file is mostly Python's own work, of which a process does one at a time.
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

from pipeline.budget import processors
from pipeline.formats import Format, formats
from pipeline.ingest.judge import Judged, judge_file, plain_verdicts, verdicts_of
from pipeline.ingest.streams import Entry

MANY = 256
"""Files that are worth to be shared."""

# In tenths, what it gets of them: this process finds the next ones meanwhile.
_SHARE = 7
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What comes of a process that has died: a closed pipe, or half an answer.
_GONE = (OSError, ValueError)


class Assistant:
    """Judges files with the help of a copy of this process, begun when there are many.

    The copy reads files and answers, no more: it opens nothing to write, starts no thread and
    leaves no trace. Where it cannot be had, or is lost, this process judges alone, to the same end.

    Args:
        forced: See `judge`.
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

    def judge(self, entries: Sequence[Entry]) -> Callable[[], list[Judged | None]]:
        """Judges files as `judge_file` does, of which the copy gets its share.

        Returns:
            What waits for it and gives all verdicts, to be called before this is called again.
        """
        share = entries[: len(entries) * _SHARE // 10] if self._is_ready(len(entries)) else ()
        asked = bool(share) and self._ask(share)
        own = [judge_file(entry, self._forced) for entry in entries[len(share) :]]
        return lambda: [*self._answer(share, asked=asked), *own]

    def _is_ready(self, files: int) -> bool:
        """Whether there is a copy; it is made when the second time there are many."""
        if files < MANY:
            return False
        self._calls += 1
        if self._calls == 2 and sys.platform == "linux" and processors() > 1:
            self._begin()
        return self._pid > 0

    def _ask(self, entries: Sequence[Entry]) -> bool:
        assert self._asks
        try:
            _send(self._asks, entries)
        except _GONE:
            self._end()
            return False
        return True

    def _answer(self, entries: Sequence[Entry], *, asked: bool) -> list[Judged | None]:
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
        # Until the copy has its own way with signals, none ends it as if it were this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            with warnings.catch_warnings():
                # Said where there are other threads: the copy asks for nothing they could hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                with contextlib.suppress(OSError):  # the system has no room for one more
                    self._pid = os.fork() or self._serve(theirs, ours)
        finally:
            self._asks, self._answers = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
            os.close(theirs[0])
            os.close(ours[1])
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _serve(self, asks: tuple[int, int], answers: tuple[int, int]) -> NoReturn:
        """The life of the copy; whatever ends it, the other process goes on by itself."""
        try:
            gc.disable()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(asks[1])  # so that it ends with the other process
            os.close(answers[0])
            with os.fdopen(asks[0], "rb") as asked, os.fdopen(answers[1], "wb") as answered:
                for line in asked:
                    entries = map(Entry._make, json.loads(line))
                    verdicts = [judge_file(entry, self._forced) for entry in entries]
                    _send(answered, plain_verdicts(verdicts))
        finally:
            os._exit(0)

    def _end(self) -> None:
        pid, self._pid = self._pid, 0
        if pid:
            # Where SIGCHLD is ignored, as some that start programs have it, nobody is waited for.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for pipe in filter(None, (self._asks, self._answers)):
            with contextlib.suppress(OSError):  # what was not sent is of no use
                pipe.close()
        self._asks = self._answers = None


def _send(pipe: IO[bytes], values: Any) -> None:
    pipe.write(json.dumps(values).encode() + b"\n")
    pipe.flush()
