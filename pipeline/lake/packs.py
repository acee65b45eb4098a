"""Packs: part files that hold the rows of many runs, and which runs those are."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

# Newer than the version of a group's manifest: a tracelake that knows no packs refuses the lake.
PACKS_VERSION = 2
# Behind the folders of runs by name: a reader that takes its columns from the first file it finds,
# and knows no run of that, must not give NULL for the run.
PACKED = "runs_packed"


@dataclass(frozen=True)
class Packs:
    """What the list of packs says.

    Attributes:
        generations: Of each run that has rows in a pack, the generation whose rows they are.
        runs: Pack, relative to the lake's root -> the runs whose rows it has, in order.
    """

    generations: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The packs that a list tells of."""
        generations: dict[str, str] = content["runs"]
        order = list(generations)
        runs = {
            pack: tuple(run for first, last in spans for run in order[first : last + 1])
            for pack, spans in content["packs"].items()
        }
        return cls(generations, runs)

    def to_json(self) -> dict[str, Any] | None:
        """The list: generations by run, and per pack first and last of each row of runs.

        None if there is no pack: then there is no list, and any tracelake reads the lake.
        """
        if not self.runs:
            return None
        named = sorted({run for runs in self.runs.values() for run in runs})
        place = {run: number for number, run in enumerate(named)}
        return {
            "version": PACKS_VERSION,
            "runs": {run: self.generations[run] for run in named},
            "packs": {
                pack: list(_spans([place[run] for run in runs]))
                for pack, runs in sorted(self.runs.items())
            },
        }

    @functools.cached_property
    def by_run(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Run -> table -> the packs that have its rows."""
        found: dict[str, dict[str, tuple[str, ...]]] = {run: {} for run in self.generations}
        for pack, runs in self.runs.items():
            table = pack.partition("/")[0]
            for run in runs:
                found[run][table] = (*found[run].get(table, ()), pack)
        return found


def pack_folder(table: str) -> str:
    """Folder of a table's packs, relative to the lake's root.

    Its name is no `key=value`: who reads the lake by a glob must not be told a run by it.
    """
    return f"{table}/{PACKED}"


def is_pack(part: str) -> bool:
    """Whether a part file, relative to the lake's root, holds the rows of many runs."""
    return part.split("/")[1] == PACKED


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each row of numbers that follow one another; they rise."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
