"""Allow one job at a time on a lake."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

from tracelake.base.errors import LakeError, next_step
from tracelake.base.files import naming

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


@contextlib.contextmanager
def alone(path: Path, wait: timedelta, warn: Callable[[str], None]) -> Iterator[None]:
    """Hold the job's lock; the kernel releases it when the process ends, however it ends.

    Args:
        path: The lock's file; it names the process that holds the lock.
        warn: Called with the process that a job waits for.

    Raises:
        LakeError: It is not released in time, or the file system has no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        message = f"cannot lock the lake: {error.strerror}"
        raise LakeError(message, path=path, hint=next_step(error)) from error
    with file:
        _take(file, path, wait, warn)
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with naming(path):
            file.truncate(0)
            json.dump({**holder, "since": since}, file)
            file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _take(file: TextIO, path: Path, wait: timedelta, warn: Callable[[str], None]) -> None:
    deadline = time.monotonic() + wait.total_seconds()
    pause, warned = _FIRST_PAUSE, False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            left = deadline - time.monotonic()
        except OSError as error:
            raise LakeError(
                f"cannot lock the lake: {error.strerror}",
                path=path,
                hint="the lake must be on a file system with locks",
            ) from error
        if left <= 0:
            raise LakeError(
                f"another run is working on this lake: {_holder(path)}",
                path=path.parent.parent,
                hint="wait until it has ended and run again, or wait longer with --wait 6h",
            )
        if not warned:
            warn(f"waiting up to {wait} for another run on this lake: {_holder(path)}")
            warned = True
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just started, or is ending
        return "unknown process"
