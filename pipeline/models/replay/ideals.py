"""Ideal lengths of the nodes of a run: those of equal peers, of balanced stages, and the mean.

Nodes do the same work if they are the same piece of the same operation. Peers are those of a stage
and chunk, over ranks, steps and micro-batches.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

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
    means = _ideals(nodes.raw_ns, works, ~comms)
    stages = rows["stage"][nodes.rows].astype(np.int64) << 32
    peers, first = numbered(works, stages + rows["chunk"][nodes.rows])
    medians = _ideals(nodes.length_ns, peers, np.zeros(len(first), np.bool_))
    over_stages = _ideals(medians, works[first], np.ones(len(comms), np.bool_))
    balanced = np.where(comms[works[first]], medians, over_stages[works[first]])
    return {
        "peer_ns": medians[peers],
        "balanced_ns": balanced[peers],
        "mean_ns": means[works],
    }


def _ideals(values: Int64s, groups: Int32s, mean: npt.NDArray[np.bool_]) -> Int64s:
    """Return the mean or the median of each group, half away from zero."""
    first, listed = linked(len(mean), groups, np.arange(len(values), dtype=np.int32))
    ordered = values[listed]
    found = np.empty(len(mean), np.int64)
    for group, (begin, end) in enumerate(itertools.pairwise(first.tolist())):
        part = ordered[begin:end]
        if mean[group]:
            total, count = int(part.sum()), len(part)
        else:
            low, high = (len(part) - 1) // 2, len(part) // 2
            part.partition((low, high))
            total, count = int(part[low]) + int(part[high]), 2
        whole = (2 * abs(total) + count) // (2 * count)
        found[group] = whole if total >= 0 else -whole
    return found
