"""Number the slots of a pipeline-training log: every rank on a stage that prints blocks has one."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.optimus.lines import BAD, HEADER
from tracelake.formats.optimus.owners import FOREIGN
from tracelake.kernels.compiled import kernel

SLOT_LIMIT = 1 << 14
_FEW = 1 << 6


@kernel
def _place(keys, key):
    """Return the index of a key in a hash table of -1s, or where it would be."""
    mark = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    k = np.int64(mark >> np.uint64(32)) % keys.size
    while keys[k] != key and keys[k] != -1:
        k = (k + 1) % keys.size
    return k


@kernel
def _enter(known, key, slot):
    k = _place(known[0], key)
    known[0, k], known[1, k] = key, slot


@kernel
def _number(pieces, known, slots, unknown):
    """Write the slot of every header whose rank and stage are known, -1 elsewhere.

    Args:
        known: (2, n): keys, a rank in the high and a stage in the low half, and their slots.
        slots: (pieces) out.
        unknown: (2, pieces) out: positions of the other headers, and their keys.

    Returns:
        Number of the other headers.
    """
    n = 0
    for i in range(pieces.size):
        slots[i] = -1
        if pieces[i].kind == HEADER:
            key = (pieces[i].code << 32) | pieces[i].place
            k = _place(known[0], key)
            if known[0, k] == key:
                slots[i] = known[1, k]
            else:
                unknown[0, n], unknown[1, n] = i, key
                n += 1
    return n


class Slots:
    """Numbers ranks on stages in order of appearance.

    Attributes:
        pairs: Rank and stage -> slot, in order of slots.
    """

    def __init__(self) -> None:
        self.pairs: dict[tuple[int, int], int] = {}
        self._stages: tuple[int, Mapping[int, tuple[int, ...]]] | None = None
        self._known = _table(_FEW)

    def stage_ranks(self, line: int, ranks: Mapping[int, tuple[int, ...]]) -> None:
        """Set the ranks of each stage, as printed on that line; the first line counts."""
        if self._stages is None:
            self._stages = (line, ranks)
            self._know_anew(self._known.shape[1])

    def number(self, pieces: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Return the slot of every header, -1 elsewhere; reject ranks of other stages."""
        slots = np.empty(pieces.size, np.int64)
        unknown = np.empty((2, pieces.size), np.int64)
        count = _number(pieces, self._known, slots, unknown)
        if count:
            self._meet(pieces, unknown[0, :count], unknown[1, :count], slots)
        return slots

    def _meet(
        self,
        pieces: npt.NDArray[np.void],
        headers: npt.NDArray[np.int64],
        keys: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
    ) -> None:
        """Assign slots to headers of unknown ranks and stages, unless these do not belong together.

        Args:
            headers: Their places among the pieces.
            keys: Of their ranks and stages.
            slots: Filled in for them.
        """
        found, where = distinct(keys)
        pairs = [(key >> 32, key & 0xFFFFFFFF) for key in found.tolist()]
        foreign = np.zeros(headers.size, np.bool_)
        if self._stages is not None:
            strange = np.array([not self._belongs(pair) for pair in pairs])
            foreign = strange[where] & (pieces["line"][headers] > self._stages[0])
        used = np.bincount(where[~foreign], minlength=len(pairs)).tolist()
        for pair in sorted(pair for pair, count in zip(pairs, used, strict=True) if count):
            if len(self.pairs) < SLOT_LIMIT and pair not in self.pairs:
                self.pairs[pair] = len(self.pairs)
                if 2 * len(self.pairs) > self._known.shape[1]:
                    self._know_anew(2 * self._known.shape[1])
                self._know(pair)
        numbers = np.array([self.pairs.get(pair, -1) for pair in pairs], np.int64)[where]
        foreign |= numbers < 0
        pieces["kind"][headers[foreign]] = BAD
        pieces["reason"][headers[foreign]] = FOREIGN
        slots[headers[~foreign]] = numbers[~foreign]

    def _belongs(self, pair: tuple[int, int]) -> bool:
        """Return whether the rank may be in the stage, as far as the log has shown its stages."""
        rank, stage = pair
        return self._stages is None or rank in self._stages[1].get(stage, ())

    def _know_anew(self, size: int) -> None:
        """Fill a table of this size with the known slots."""
        self._known = _table(size)
        for pair in self.pairs:
            self._know(pair)

    def _know(self, pair: tuple[int, int]) -> None:
        """Make headers of this rank and stage find their slot, unless they are invalid."""
        if self._belongs(pair):
            rank, stage = pair
            _enter(self._known, (rank << 32) | stage, self.pairs[pair])


def _table(size: int) -> npt.NDArray[np.int64]:
    return np.full((2, size), -1)


def distinct(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return distinct values in order of appearance, and the index of each value among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
