"""Waiting that a signal always ends."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

# The system may hand a signal to any thread of the process. Python acts on it in the main thread
# alone, and only once that wakes: so it never sleeps for long.
_SLEEP = 0.2
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
