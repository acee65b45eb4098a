"""List packs: part files with the rows of many runs, and which runs those are."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

# Newer than the version of a group's manifest, so a tracelake without packs refuses the lake.
PACKS_VERSION = 2
# The name sorts after the folders of runs: a reader that takes its columns from the first file it
# finds must see the run id there, and not return NULL for it.
PACKED = "runs_packed"


@dataclass(frozen=True)
class Packs:
    """The list of packs.

    Attributes:
        generations: The generation of each run's rows in packs.
        runs: Pack, relative to the lake's root -> the runs whose rows it has, in order.
    """

    generations: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the packs of a list."""
        generations: dict[str, str] = content["runs"]
        order = list(generations)
        runs = {
            pack: tuple(run for first, last in spans for run in order[first : last + 1])
            for pack, spans in content["packs"].items()
        }
        return cls(generations, runs)

    def to_json(self) -> dict[str, Any] | None:
        """Return the list: generations by run, and per pack first and last of each row of runs.

        None without packs: then there is no list, and any tracelake can read the lake.
        """
        if not self.runs:
            return None
        named = sorted({run for runs in self.runs.values() for run in runs})
        place = {run: number for number, run in enumerate(named)}
        return {
            "version": PACKS_VERSION,
            # A damaged list may lack a run of a pack; then nothing reads its rows there.
            "runs": {run: self.generations.get(run, "") for run in named},
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
    """Return folder of a table's packs, relative to the lake's root.

    Its name is not `key=value`, so a reader with a glob does not take a run id from it.
    """
    return f"{table}/{PACKED}"


def is_pack(part: str) -> bool:
    """Return whether a part file, relative to the lake's root, has the rows of many runs."""
    return part.split("/")[1] == PACKED


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each sequence of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
