"""Steps as a graph that can be replayed under any lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tracelake.kernels.compiled import LANES
from tracelake.models.replay.passes import Int32s, Int64s, link, order, times

Times = Sequence[Sequence[int | None]]
"""Times in ns, by step and wanted key; None where nodes wait for each other."""
GRAPH_ARRAYS = ("nodes", "prev_first", "prev_listed", "groups", "steps", "events")
"""Fields of a graph that are arrays."""


@dataclass(frozen=True)
class Graph:
    """Steps in the form that the passes take.

    Nodes have places in the order in which they start, so that those that are needed together lie
    together in memory; a step of 1,000 ranks is larger than a processor's cache. Where nodes wait
    for each other, it is a graph of one step.

    Attributes:
        nodes: The node at each place.
        prev_first: With `prev_listed`, the places of the nodes before each place; see `link`.
        groups: Per place the numbers of its two groups, -1 for none.
        steps: Per place the number of its step, from 0.
        events: Order of starts and ends, of places.
        ordered: Whether no nodes wait for each other: only then there is an order.
    """

    nodes: Int32s
    prev_first: Int32s
    prev_listed: Int32s
    groups: Int32s
    steps: Int32s
    events: Int32s
    ordered: bool

    @classmethod
    def of(
        cls,
        before: Sequence[Int32s],
        after: tuple[Int32s, Int32s],
        groups: Int32s,
        steps: Int32s | None = None,
    ) -> Self:
        """Order steps.

        Args:
            before: Nodes that end before the node at their place starts, -1 for none.
            after: Nodes, and for each a further one that ends before it starts.
            groups: Per node the first nodes of its two groups, -1 for none.
            steps: Per node the number of its step; without them there is one.
        """
        nodes = len(groups)
        numbers = np.arange(nodes, dtype=np.int32)
        sources = np.concatenate([*before, after[1]]).astype(np.int32)
        targets = np.concatenate([*[numbers] * len(before), after[0]]).astype(np.int32)
        targets[sources < 0] = -1
        prev_first, prev_listed = linked(nodes, targets, sources)
        events = np.empty(nodes + np.count_nonzero((groups >= 0).any(axis=1)), np.int32)
        filled = (
            np.empty_like(numbers), np.zeros_like(prev_first), np.empty_like(prev_listed),
            np.empty_like(groups),
        )  # fmt: skip
        found = order(
            groups, prev_first, prev_listed, *linked(nodes, sources, targets),
            *linked(nodes, groups.ravel(), np.repeat(numbers, 2)), np.empty((nodes, 5), np.int32),
            *filled, events,
        )  # fmt: skip
        ordered = found == len(events)
        by_place = np.zeros_like(numbers)
        if ordered and steps is not None:
            by_place = steps[filled[0]]
        return cls(*filled, by_place, events, ordered)

    def ends(self, lengths: Int64s) -> Int64s:
        """Return when each node ends, for a graph with an order."""
        own = lengths[self.nodes]
        ends, _ = self._replayed(own, own, np.zeros_like(self.nodes), (0,), np.zeros_like(own))
        by_node = np.empty_like(lengths)
        by_node[self.nodes] = ends[:, 0]
        return by_node

    def starts(self, ends: Int64s) -> Int64s:
        """Return when each node starts: when all before it have ended."""
        starts = np.zeros(len(ends), np.int64)
        nodes = np.repeat(self.nodes, np.diff(self.prev_first))
        np.maximum.at(starts, nodes, ends[self.nodes[self.prev_listed]])
        return starts

    def times(
        self,
        outside: Int64s,
        keys: Int32s | None = None,
        wanted: Sequence[int] = (-1,),
        inside: Int64s | None = None,
        delays: Int64s | None = None,
    ) -> Times:
        """Return how long steps take: per wanted key, with its nodes' lengths from `inside`.

        Without keys all nodes have key 0.
        """
        if not self.ordered:
            return [[None for _ in wanted]]
        others = outside[self.nodes]
        own = others if inside is None else inside[self.nodes]
        keys = np.zeros_like(self.nodes) if keys is None else keys[self.nodes]
        delays = np.zeros_like(others) if delays is None else delays[self.nodes]
        return self._replayed(own, others, keys, wanted, delays)[1]

    def _replayed(
        self, inside: Int64s, outside: Int64s, keys: Int32s, wanted: Sequence[int], delays: Int64s
    ) -> tuple[Int64s, Times]:
        """Return the ends of places for the last wanted keys, and the steps' times for all.

        The arrays are by place; see `passes.times`.
        """
        assert self.ordered
        ends = np.empty((len(self.nodes), LANES), np.int64)
        latest = np.empty((self.groups.max(initial=-1) + 1, LANES), np.int64)
        last = np.empty((self.steps.max(initial=0) + 1, LANES), np.int64)
        found = np.empty((len(last), len(wanted)), np.int64)
        for begin in range(0, len(wanted), LANES):
            some = wanted[begin : begin + LANES]
            row = np.full((1, LANES), some[-1], np.int64)
            row[0, : len(some)] = some
            times(
                self.events, self.prev_first, self.prev_listed, self.groups, self.steps, keys, row,
                inside, outside, delays, ends, latest, last,
            )  # fmt: skip
            found[:, begin : begin + LANES] = last[:, : len(some)]
        return ends, found.tolist()


def linked(nodes: int, sources: Int32s, targets: Int32s) -> tuple[Int32s, Int32s]:
    """Return the targets of every source: those of `n` are listed[first[n]:first[n + 1]]."""
    first, place = np.empty(nodes + 1, np.int32), np.empty(nodes + 1, np.int32)
    listed = np.empty(len(sources), np.int32)
    link(nodes, sources, targets, first, listed, place)
    return first, listed[: first[-1]]
