"""Number the slots of a pipeline-training log: every rank on a stage that prints blocks has one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.optimus.lines import BAD, HEADER
from tracelake.formats.optimus.owners import FOREIGN

SLOT_LIMIT = 1 << 14


class Slots:
    """Numbers ranks on stages in order of appearance.

    Attributes:
        pairs: Rank and stage -> slot, in order of slots.
    """

    def __init__(self) -> None:
        self.pairs: dict[tuple[int, int], int] = {}
        self._stages: tuple[int, Mapping[int, tuple[int, ...]]] | None = None

    def stage_ranks(self, line: int, ranks: Mapping[int, tuple[int, ...]]) -> None:
        """Set the ranks of each stage, as printed on that line; the first line counts."""
        self._stages = self._stages or (line, ranks)

    def number(self, pieces: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Return the slot of every header, -1 elsewhere; reject ranks of other stages."""
        headers = np.flatnonzero(pieces["kind"] == HEADER)
        keys = (pieces["code"][headers] << 32) | pieces["place"][headers]
        found, where = distinct(keys)
        pairs = [(key >> 32, key & 0xFFFFFFFF) for key in found.tolist()]
        foreign = np.zeros(headers.size, np.bool_)
        if self._stages is not None:
            line, ranks = self._stages
            strange = [rank not in ranks.get(stage, ()) for rank, stage in pairs]
            foreign = np.array(strange, np.bool_)[where] & (pieces["line"][headers] > line)
        used = np.bincount(where[~foreign], minlength=len(pairs)).tolist()
        for pair in sorted(pair for pair, count in zip(pairs, used, strict=True) if count):
            if len(self.pairs) < SLOT_LIMIT:
                self.pairs.setdefault(pair, len(self.pairs))
        numbers = np.array([self.pairs.get(pair, -1) for pair in pairs], np.int64)[where]
        foreign |= numbers < 0
        pieces["kind"][headers[foreign]] = BAD
        pieces["reason"][headers[foreign]] = FOREIGN
        slots = np.full(pieces.size, -1)
        slots[headers[~foreign]] = numbers[~foreign]
        return slots


def distinct(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return distinct values in order of appearance, and the index of each value among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
