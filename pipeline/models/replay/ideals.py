"""Ideal lengths of the nodes of runs: those of equal peers, of balanced stages, and the mean.

Nodes of a run do the same work if they are the same piece of the same operation. Peers are those of
a stage and chunk, over ranks, steps and micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import kernel
from tracelake.models.replay.graph import linked
from tracelake.models.replay.nodes import Nodes, Rows, numbered
from tracelake.models.replay.passes import Int32s, Int64s


class Ideals:
    """Ideal lengths by the number of peers, which are numbered as their nodes come.

    Attributes:
        peer_ns: Median of the peers.
        balanced_ns: Of compute the mean of these medians over stages, else the same.
        mean_ns: That of the published analysis: of compute the mean over stages and ranks, else
            the median.
    """

    def __init__(self) -> None:
        self.peer_ns = self.balanced_ns = self.mean_ns = np.empty(0, np.int64)
        self._ops: dict[str, int] = {}
        self._peers: dict[tuple[int, int, int], int] = {}

    def peers(self, rows: Rows, ops: Sequence[str], nodes: Nodes, runs: Int64s) -> Int32s:
        """Return the numbers of the peers of nodes.

        Args:
            ops: What the numbers in the column `op` mean.
            runs: The number of the run of each node.
        """
        known = np.array([self._ops.setdefault(op, len(self._ops)) for op in ops])
        parts = (runs << 32) + 2 * known[rows["op"][nodes.rows]] + nodes.comms
        works, _ = numbered(parts, nodes.pieces)
        stages = (rows["stage"][nodes.rows].astype(np.int64) << 32) + rows["chunk"][nodes.rows]
        peers, first = numbered(works, stages)
        columns = (column[first].tolist() for column in (parts, nodes.pieces, stages))
        keys = zip(*columns, strict=True)
        numbers = [self._peers.setdefault(key, len(self._peers)) for key in keys]
        return np.array(numbers, np.int32)[peers]

    def fill(self, length_ns: Int64s, raw_ns: Int64s, peers: Int32s) -> None:
        """Compute the ideals of all nodes of the runs."""
        parts, pieces, _ = np.array([*self._peers], np.int64).T
        works, first = numbered(parts, pieces)
        comms = (parts[first] & 1).astype(np.bool_)
        medians = _ideals(length_ns, peers, np.zeros(len(parts), np.bool_))
        over_stages = _ideals(medians, works, np.ones(len(comms), np.bool_))
        self.peer_ns = medians
        self.balanced_ns = np.where(comms[works], medians, over_stages[works])
        self.mean_ns = _ideals(raw_ns, works[peers], ~comms)[works]


def _ideals(values: Int64s, groups: Int32s, mean: npt.NDArray[np.bool_]) -> Int64s:
    """Return the mean or the median of each group, half away from zero."""
    first, listed = linked(len(mean), groups, np.arange(len(values), dtype=np.int32))
    ordered, counts = values[listed], np.diff(first)
    totals = np.add.reduceat(ordered, first[:-1])
    sizes = np.abs(totals)
    means = np.sign(totals) * (sizes // counts + (2 * (sizes % counts) >= counts))
    found = np.empty(len(mean), np.int64)
    medians(first, ordered, found)
    return np.where(mean, means, found)


@kernel
def medians(first: Int32s, values: Int64s, found: Int64s) -> None:
    """Fill `found` with the median of the values of each group, half away from zero.

    Args:
        first: First value of each group, and their number. Values change places.
    """
    for group in range(found.shape[0]):
        left, right = first[group], first[group + 1] - 1
        even = (right - left) % 2 == 1
        end, middle = right + 1, (left + right) // 2
        while left < right:  # Hoare's selection of the value in the middle
            pivot, i, j = values[(left + right) // 2], left, right
            while i <= j:
                while values[i] < pivot:
                    i += 1
                while values[j] > pivot:
                    j -= 1
                if i <= j:
                    values[i], values[j] = values[j], values[i]
                    i += 1
                    j -= 1
            if j < middle:
                left = i
            if middle < i:
                right = j
        low = high = values[middle]
        if even:
            high = values[middle + 1]
            for i in range(middle + 2, end):
                high = min(high, values[i])
        if low >= 0:  # their sum may have no place
            found[group] = low + (high - low + 1) // 2
        else:
            total = low + high
            found[group] = (total + (total > 0)) // 2
