"""Read ahead what waits for a disk or a network."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

# Files and folders that are looked at together, the first of them alone, to tell whether that
# waits, and the others by threads, a few each: to hand one to a thread takes as long as to read it.
_TOGETHER, _FIRST, _PART = 128, 4, 8
# Seconds: the system answers from memory in a tenth of it, a disk or a network seldom in less.
_WAITS = 5e-4


def read_ahead(items: Iterable[_T], read: Callable[[_T], _R]) -> Iterator[tuple[_T, _R]]:
    """Yield items in order, each with what is read of it: by threads where that waits.

    What the system has in memory is read faster without threads. A disk or a network file system
    answers many at once in the time of one.
    """
    rest = iter(items)
    while batch := list(islice(rest, _TOGETHER)):
        began = time.perf_counter()
        found = [read(item) for item in batch[:_FIRST]]
        left = batch[_FIRST:]
        if left and time.perf_counter() - began > _FIRST * _WAITS:
            parts = [left[i : i + _PART] for i in range(0, len(left), _PART)]
            with ThreadPoolExecutor(len(parts), thread_name_prefix="read-ahead") as pool:
                for done in pool.map(lambda part: [read(item) for item in part], parts):
                    found.extend(done)
        else:
            found.extend(map(read, left))
        yield from zip(batch, found, strict=True)


def prefetch(
    items: Iterable[_T], work: Callable[[_T], Callable[[], _R] | None], width: int
) -> Iterator[tuple[_T, Future[_R] | None]]:
    """Yield items in order, each with its work, which starts while earlier items are handled.

    Opening an object of a store takes tens of milliseconds and no processor time.

    Args:
        work: The work for an item; None for nothing.
        width: How many items ahead the work starts, and how many run at once.
    """
    coming: deque[tuple[_T, Future[_R] | None]] = deque()
    with ThreadPoolExecutor(width, thread_name_prefix="prefetch") as pool:
        for item in items:
            its = work(item)
            coming.append((item, None if its is None else pool.submit(its)))
            if len(coming) > width:
                yield coming.popleft()
        yield from coming
