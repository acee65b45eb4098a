"""One step as a graph that can be replayed under any lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tracelake.models.replay.passes import Int32s, Int64s, link, order, times

_COLUMNS = 8


@dataclass(frozen=True)
class Graph:
    """One step in the form that the passes take.

    Attributes:
        groups: Per node the numbers of its two groups, -1 for none.
        events: Order of starts and ends; None where nodes wait for each other.
    """

    prev_first: Int32s
    prev_listed: Int32s
    groups: Int32s
    events: Int32s | None

    @classmethod
    def of(cls, before: Sequence[Int32s], after: tuple[Int32s, Int32s], groups: Int32s) -> Self:
        """Order a step.

        Args:
            before: Nodes that end before the node at their place starts, -1 for none.
            after: Nodes, and for each a further one that ends before it starts.
        """
        nodes = len(groups)
        numbers = np.arange(nodes, dtype=np.int32)
        sources = np.concatenate([*before, after[1]]).astype(np.int32)
        targets = np.concatenate([*[numbers] * len(before), after[0]]).astype(np.int32)
        targets[sources < 0] = -1
        prev_first, prev = linked(nodes, targets, sources)
        next_first, next_listed = linked(nodes, sources, targets)
        lengths = np.diff(prev_first).astype(np.int32)
        member_first, member_listed = linked(nodes, groups.ravel(), np.repeat(numbers, 2))
        waiting = (groups >= 0).sum(axis=1).astype(np.int32)
        events, found = np.empty(2 * nodes, np.int32), np.zeros(1, np.int64)
        order(
            groups, next_first, next_listed, member_first, member_listed,
            lengths, waiting, np.diff(member_first).astype(np.int32), events, found,
        )  # fmt: skip
        return cls(prev_first, prev, groups, events if found[0] == 2 * nodes else None)

    def ends(self, lengths: Int64s) -> Int64s:
        """Return when each node ends, for a graph with events."""
        assert self.events is not None
        ends = np.empty((len(lengths), 1), np.int64)
        times(
            self.events, self.prev_first, self.prev_listed, self.groups,
            np.zeros(len(lengths), np.int32), np.array([-1], np.int32), lengths, lengths,
            np.zeros(len(lengths), np.int64), ends, np.zeros_like(ends), np.empty(1, np.int64),
        )  # fmt: skip
        return ends[:, 0]

    def starts(self, ends: Int64s) -> Int64s:
        """Return when each node starts: when all before it have ended."""
        starts = np.zeros(len(ends), np.int64)
        nodes = np.repeat(np.arange(len(ends)), np.diff(self.prev_first))
        np.maximum.at(starts, nodes, ends[self.prev_listed])
        return starts

    def times(
        self,
        outside: Int64s,
        keys: Int32s | None = None,
        wanted: Sequence[int] = (-1,),
        inside: Int64s | None = None,
        delays: Int64s | None = None,
    ) -> list[int | None]:
        """Return how long the step takes: per wanted key, with its nodes' lengths from `inside`.

        Without keys all nodes have key 0.
        """
        if self.events is None:
            return [None for _ in wanted]
        nodes = len(outside)
        keys = np.zeros(nodes, np.int32) if keys is None else keys
        delays = np.zeros(nodes, np.int64) if delays is None else delays
        found: list[int | None] = []
        for begin in range(0, len(wanted), _COLUMNS):
            columns = np.array(wanted[begin : begin + _COLUMNS], np.int32)
            ends = np.empty((nodes, len(columns)), np.int64)
            last = np.empty(len(columns), np.int64)
            times(
                self.events, self.prev_first, self.prev_listed, self.groups, keys, columns,
                outside if inside is None else inside, outside, delays,
                ends, np.zeros_like(ends), last,
            )  # fmt: skip
            found += last.tolist()
        return found


@dataclass(frozen=True)
class Step:
    """The nodes of a step with what they could take.

    Attributes:
        paper_graph: As the published analysis has it: every send ends with its receive.
    """

    number: int
    graph: Graph
    paper_graph: Graph
    ranks: Int32s
    stages: Int32s
    replicas: Int32s
    batches: Int32s
    kinds: Int32s
    lengths: dict[str, Int64s]


def linked(nodes: int, sources: Int32s, targets: Int32s) -> tuple[Int32s, Int32s]:
    """Return the targets of every source: those of `n` are listed[first[n]:first[n + 1]]."""
    first, place = np.empty(nodes + 1, np.int32), np.empty(nodes + 1, np.int32)
    listed = np.empty(len(sources), np.int32)
    link(nodes, sources, targets, first, listed, place)
    return first, listed[: first[-1]]
