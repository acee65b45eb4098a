"""Ideal lengths of the nodes of a run: those of equal peers, of balanced stages, and the mean.

Nodes do the same work if they are the same piece of the same operation. Peers are those of a stage
and chunk, over ranks, steps and micro-batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelake.models.replay.graph import linked
from tracelake.models.replay.nodes import Nodes, Rows, numbered
from tracelake.models.replay.passes import Int32s, Int64s


def ideals(rows: Rows, nodes: Nodes) -> dict[str, Int64s]:
    """Return the ideal lengths of nodes by name.

    `peer_ns` is the median of the peers; `balanced_ns` of compute the mean of these medians over
    stages, else the same. `mean_ns` is that of the published analysis: of compute the mean over
    stages and ranks, else the median.
    """
    works, first = numbered(2 * rows["op"][nodes.rows].astype(np.int64) + nodes.comms, nodes.pieces)
    comms = nodes.comms[first]
    means = _medians(nodes.raw_ns, works, len(first))
    for work in np.flatnonzero(~comms):
        means[work] = _rounded(nodes.raw_ns[works == work].sum(), (works == work).sum())

    stages = rows["stage"][nodes.rows].astype(np.int64) << 32
    peers, first = numbered(works, stages + rows["chunk"][nodes.rows])
    medians = _medians(nodes.length_ns, peers, len(first))
    balanced, work_of = medians.copy(), works[first]
    for work in np.flatnonzero(~comms):
        alike = work_of == work
        balanced[alike] = _rounded(medians[alike].sum(), alike.sum())
    return {
        "peer_ns": medians[peers],
        "balanced_ns": balanced[peers],
        "mean_ns": means[works],
    }


def _medians(values: Int64s, groups: Int32s, count: int) -> Int64s:
    """Return the median of each group, half away from zero where it lies between two values."""
    first, listed = linked(count, groups, np.arange(len(values), dtype=np.int32))
    ordered = values[listed]
    found = np.empty(count, np.int64)
    for group in range(count):
        part = ordered[first[group] : first[group + 1]]
        low, high = (len(part) - 1) // 2, len(part) // 2
        part.partition((low, high))
        found[group] = _rounded(part[low] + part[high], 2)
    return found


def _rounded(total: Any, count: Any) -> int:
    """Return a quotient as a whole number, half away from zero."""
    whole = (2 * abs(int(total)) + int(count)) // (2 * int(count))
    return whole if total >= 0 else -whole
