"""The steps of runs with what their nodes could take, made of their rows piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tracelake.base.packing import packed
from tracelake.models.columns import Columns
from tracelake.models.replay.graph import GRAPH_ARRAYS, Graph, Times
from tracelake.models.replay.ideals import Ideals
from tracelake.models.replay.nodes import Nodes
from tracelake.models.replay.passes import Int32s, Int64s
from tracelake.models.replay.stored import ArrayFile, Arrays, Place

# Nodes of steps that are replayed together: what a processor's cache holds of them.
_TOGETHER = 4096


@dataclass(frozen=True)
class Steps:
    """The nodes of one or several steps with what they could take.

    Attributes:
        numbers: Number of the run and of the step, of each step.
        paper_graph: As the published analysis has it: every send ends with its receive.
        runs: Number of the run of each node.
        peers: Numbers of their peers among the `ideals` of the runs.
        length_ns: What they took, as `Nodes` has it; `raw_ns` likewise.
        delayed_ns: How long each step takes with the delays before its nodes.
    """

    numbers: Sequence[tuple[int, int]]
    graph: Graph
    paper_graph: Graph
    runs: Int32s
    ranks: Int32s
    stages: Int32s
    replicas: Int32s
    batches: Int32s
    kinds: Int32s
    peers: Int32s
    length_ns: Int64s
    raw_ns: Int64s
    delayed_ns: Times
    ideals: Ideals

    @property
    def number(self) -> int:
        """Return the number of the step, where it is one."""
        ((_, number),) = self.numbers
        return number

    @property
    def peer_ns(self) -> Int64s:
        """Return the lengths of equal peers."""
        return self.ideals.peer_ns[self.peers]

    @property
    def balanced_ns(self) -> Int64s:
        """Return the lengths of equal peers in balanced stages."""
        return self.ideals.balanced_ns[self.peers]

    @property
    def mean_ns(self) -> Int64s:
        """Return the ideal lengths of the published analysis."""
        return self.ideals.mean_ns[self.peers]


class Runs:
    """Collects the steps of runs in a file, because their nodes take 70 bytes each.

    Attributes:
        names: Identifiers of the runs by their number.
        streams: Their ranks have several streams, as in the traces of the published analysis.
    """

    def __init__(self, file: ArrayFile, *, together: bool = True) -> None:
        """Prepare for the rows of runs.

        Args:
            together: Small steps may be replayed together, where ranks have one stream.
        """
        self.names: list[str] = []
        self.streams = True
        self._together = together
        self._file = file
        # Of steps the place of their arrays, the graphs and whether they are ordered, and the rest.
        self._steps: list[tuple[Place, dict[str, bool], Mapping[str, Any]]] = []
        self._ideals = Ideals()
        self._kinds: dict[str, int] = {}
        self._lengths: list[tuple[Int64s, Int64s, Int32s]] = []

    @property
    def kinds(self) -> list[str]:
        """Return the names of kinds by their number."""
        return [*self._kinds]

    def add(self, columns: Columns) -> None:
        """Make the steps of rows: of several runs, or further ones of the same run."""
        rows, texts = columns.arrays, columns.texts
        self.names = [*texts["run_id"]]
        nodes = Nodes.of(rows, texts["part"])
        runs = rows["run_id"][nodes.rows]
        peers = self._ideals.peers(rows, texts["op"], nodes, runs.astype(np.int64))
        equal = np.array_equal(nodes.raw_ns, nodes.length_ns)
        raw_ns = nodes.length_ns if equal else nodes.raw_ns
        self._lengths.append((nodes.length_ns, raw_ns, peers))
        arrays = {
            "runs": runs,
            "ranks": rows["rank"][nodes.rows],
            "stages": rows["stage"][nodes.rows],
            "replicas": rows["replica"][nodes.rows],
            "batches": rows["micro_batch"][nodes.rows],
            "kinds": self._numbered_kinds(nodes.kinds, texts["kind"]),
            "peers": peers,
            "length_ns": nodes.length_ns,
        }
        if not equal:
            arrays["raw_ns"] = raw_ns
        streams = bool((arrays["replicas"] >= 0).all())
        self.streams &= streams
        numbers = rows["step"][nodes.rows]
        bounds = [*nodes.first.tolist(), len(nodes.rows)]
        most = _TOGETHER if self._together and not streams else 0
        pending = [*packed(pairwise(bounds), (lambda step: step[1] - step[0], most))][::-1]
        while pending:
            steps = pending.pop()
            begin, end = steps[0][0], steps[-1][1]
            part, first = slice(begin, end), [one for one, _ in steps]
            own = np.repeat(np.arange(len(steps), dtype=np.int32), np.diff([*first, end]))
            low, high = np.searchsorted(nodes.after[0], [begin, end])
            after = nodes.after[0][low:high] - begin, nodes.after[1][low:high] - begin
            groups = np.where(nodes.groups[part] < 0, -1, nodes.groups[part] - begin)
            before = [
                np.where(array[part] < 0, -1, array[part] - begin)
                for array in (nodes.prev, nodes.senders)
            ]
            graph = paper = Graph.of(before, after, np.ascontiguousarray(groups[:, :2]), own)
            if streams and (groups[:, 0] != groups[:, 2]).any():
                alone = np.column_stack([groups[:, 2], np.full_like(groups[:, 2], -1)])
                paper = Graph.of([], after, alone, own)
            if len(steps) > 1 and not (graph.ordered and paper.ordered):
                pending += ([step] for step in reversed(steps))
                continue
            self._append(
                {name: array[part] for name, array in arrays.items()},
                {"graph": graph} if paper is graph else {"graph": graph, "paper_graph": paper},
                numbers=[*zip(runs[first].tolist(), numbers[first].tolist(), strict=True)],
                delayed_ns=graph.times(nodes.length_ns[part], delays=nodes.delay_ns[part]),
            )

    def finish(self) -> None:
        """Compute the ideals: all steps of the runs are there."""
        lengths, raw, peers = zip(*self._lengths, strict=True)
        self._lengths.clear()
        length_ns = np.concatenate(lengths)
        equal = all(one is other for one, other in zip(lengths, raw, strict=True))
        raw_ns = length_ns if equal else np.concatenate(raw)
        del lengths, raw
        self._ideals.fill(length_ns, raw_ns, np.concatenate(peers))

    def __len__(self) -> int:
        """Return how many `Steps` there are."""
        return len(self._steps)

    def __getitem__(self, place: int) -> Steps:
        """Return steps of finished runs; threads may do so at once."""
        stored, ordered, others = self._steps[place]
        arrays: dict[str, Any] = self._file.read(stored)
        graphs = {
            name: Graph(
                **{part: arrays.pop(f"{name}.{part}") for part in GRAPH_ARRAYS}, ordered=known
            )
            for name, known in ordered.items()
        }
        return Steps(
            graph=graphs["graph"],
            paper_graph=graphs.get("paper_graph", graphs["graph"]),
            raw_ns=arrays.pop("raw_ns", arrays["length_ns"]),
            ideals=self._ideals,
            **others,
            **arrays,
        )

    def __iter__(self) -> Iterator[Steps]:
        """Yield the steps of finished runs."""
        return map(self.__getitem__, range(len(self)))

    def _append(self, arrays: Arrays, graphs: Mapping[str, Graph], **others: object) -> None:
        of_graphs = {
            f"{name}.{part}": getattr(graph, part)
            for name, graph in graphs.items()
            for part in GRAPH_ARRAYS
        }
        stored = self._file.write({**arrays, **of_graphs})
        ordered = {name: graph.ordered for name, graph in graphs.items()}
        self._steps.append((stored, ordered, others))

    def _numbered_kinds(self, kinds: Int32s, names: Sequence[str]) -> Int32s:
        numbers = np.zeros(len(names), np.int32)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            numbers[kind] = self._kinds.setdefault(names[kind], len(self._kinds))
        return numbers[kinds]
