"""Find micro-batches of a workload plan: where its row list repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelake.kernels.arrow import Mask
from tracelake.kernels.numbers import Longs


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` blocks of `length` rows each, from row `first` on."""

    first: int
    length: int
    count: int

    def places(self, rows: Longs) -> tuple[Longs, Mask]:
        """Return each row's distance from the first block's start, and whether it is in a block."""
        places = rows - self.first
        return places, (places >= 0) & (places < self.count * self.length)


def find_repeat(rows: Longs, layers: Longs, first: int, count: int) -> Repeat | None:
    """Return the blocks that a layer begins.

    Args:
        rows: Numbers of all rows of the plan.
        layers: A number for the name of each row's layer.
        first: The number of the name that begins a block.
        count: Number of blocks there must be, at least 2.

    Returns:
        None unless exactly so many rows have that name, at equal distance, with the same layers
        between them.
    """
    starts = rows[layers == first]
    if len(starts) != count or (np.diff(starts, 2) != 0).any():
        return None
    repeat = Repeat(int(starts[0]), int(starts[1] - starts[0]), count)
    places, inside = repeat.places(rows)
    _, example, kind = np.unique(
        places[inside] % repeat.length, return_index=True, return_inverse=True
    )
    found = layers[inside]
    return repeat if (found == found[example][kind]).all() else None
