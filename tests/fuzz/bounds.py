"""Runs every parser with its kernels under bounds checking; started by a test and by hand::

NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=FOLDER python -m tests.fuzz.bounds COUNT
"""

from __future__ import annotations

import sys
from random import Random

import numpy as np

from tests.fuzz import compiled


def main(count: int) -> None:
    """Golden inputs, all seeds, and so many mutations of each format's."""
    compiled.check_bounds()

    from tests.fuzz.invariants import examine
    from tests.fuzz.mutate import mutate
    from tests.fuzz.seeds import every_seed, seeds
    from tests.parsing import large_formats
    from tracelake.kernels.numbers import line_ends

    try:  # the check itself: eight bytes from the last one of an array on
        compiled.read_word(np.zeros(8, np.uint8), 1)
    except IndexError:
        pass
    else:
        raise AssertionError("bounds are not checked")
    assert line_ends(np.full(9, ord("\n"), np.uint8), np.empty(1, np.int64))[1] == 9
    every = every_seed()
    for name, text in every:
        examine(name, text, Random(len(text)))
    pool = [text for _, text in every]
    for name in large_formats():
        own = seeds(name)
        for number in range(count):
            random = Random(f"bounds/{name}/{number}")
            examine(name, mutate(random, random.choice(own), pool), random)
    print(f"{len(every) + count * len(large_formats())} inputs")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
