"""Write in few numbers which runs have rows in each part file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

RunsOf = Mapping[str, tuple[str, ...]]
"""Part file, relative to the lake's root -> the runs whose rows it has, in order."""


def to_spans(runs_of: RunsOf) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """Return all runs in order, and per part first and last of each sequence of them."""
    named = sorted({run for runs in runs_of.values() for run in runs})
    place = {run: number for number, run in enumerate(named)}
    places = {part: [place[run] for run in runs] for part, runs in sorted(runs_of.items())}
    return named, {part: list(_spans(numbers)) for part, numbers in places.items()}


def from_spans(
    parts: Mapping[str, Sequence[Sequence[int]]], named: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the runs of parts; see `to_spans`."""
    return {
        part: tuple(run for first, last in spans for run in named[first : last + 1])
        for part, spans in parts.items()
    }


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each sequence of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
