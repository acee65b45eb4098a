"""Prefetch: start work that mostly waits before its result is needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


def ahead(
    items: Iterable[_T], work: Callable[[_T], Callable[[], _R] | None], width: int
) -> Iterator[tuple[_T, Future[_R] | None]]:
    """Yield items in order, each with its work, which starts while earlier items are handled.

    Opening an object of a store takes tens of milliseconds and no processor time.

    Args:
        work: The work for an item; None for nothing.
        width: How many items ahead the work starts, and how many run at once.
    """
    coming: deque[tuple[_T, Future[_R] | None]] = deque()
    with ThreadPoolExecutor(width, thread_name_prefix="ahead") as pool:
        for item in items:
            its = work(item)
            coming.append((item, None if its is None else pool.submit(its)))
            if len(coming) > width:
                yield coming.popleft()
        yield from coming
