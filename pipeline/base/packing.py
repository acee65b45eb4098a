"""Divide work into pieces of bounded size, and numbers into spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import add
from typing import TypeVar

_T = TypeVar("_T")


def packed(items: Iterable[_T], *bounds: tuple[Callable[[_T], int], int]) -> Iterator[list[_T]]:
    """Yield items in order, as many together as fit; an item that exceeds a bound is alone.

    Args:
        bounds: Measures of an item, each with the largest sum that a list may have.
    """
    together: list[_T] = []
    sums = [0] * len(bounds)
    for item in items:
        sizes = [measure(item) for measure, _ in bounds]
        grown = [*map(add, sums, sizes)]
        if together and any(size > most for size, (_, most) in zip(grown, bounds, strict=True)):
            yield together
            together, grown = [], sizes
        together.append(item)
        sums = grown
    if together:
        yield together


def spans_of(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each sequence of consecutive numbers.

    Example:
        >>> [*spans_of([0, 1, 2, 5])]
        [(0, 2), (5, 5)]
    """
    for _, places in groupby(enumerate(numbers), lambda place: place[1] - place[0]):
        span = [number for _, number in places]
        yield span[0], span[-1]
