"""The steps of a run with what their nodes could take, made of its rows piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tracelake.models.columns import Columns
from tracelake.models.replay.graph import GRAPH_ARRAYS, Graph
from tracelake.models.replay.ideals import Ideals
from tracelake.models.replay.nodes import Nodes
from tracelake.models.replay.passes import Int32s, Int64s
from tracelake.models.replay.stored import ArrayFile, Arrays, Place


@dataclass(frozen=True)
class Step:
    """The nodes of a step with what they could take.

    Attributes:
        paper_graph: As the published analysis has it: every send ends with its receive.
        peers: Numbers of their peers among the `ideals` of the run.
        length_ns: What they took, as `Nodes` has it; `raw_ns` likewise.
        delayed_ns: How long the step takes with the delays before its nodes.
    """

    number: int
    graph: Graph
    paper_graph: Graph
    ranks: Int32s
    stages: Int32s
    replicas: Int32s
    batches: Int32s
    kinds: Int32s
    peers: Int32s
    length_ns: Int64s
    raw_ns: Int64s
    delayed_ns: int | None
    ideals: Ideals

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


class Run:
    """Collects the steps of a run in a file, because their nodes take 70 bytes each.

    Attributes:
        streams: Its ranks have several streams, as in the traces of the published analysis.
    """

    def __init__(self, file: ArrayFile) -> None:
        """Prepare for the rows of a run."""
        self.streams = True
        self._file = file
        # Per step the place of its arrays, the graphs and whether they are ordered, and the rest.
        self._steps: list[tuple[Place, dict[str, bool], Mapping[str, Any]]] = []
        self._ideals = Ideals()
        self._kinds: dict[str, int] = {}
        self._lengths: list[tuple[Int64s, Int64s, Int32s]] = []

    @property
    def kinds(self) -> list[str]:
        """Return the names of kinds by their number."""
        return [*self._kinds]

    def add(self, columns: Columns) -> None:
        """Make the steps of rows."""
        rows, texts = columns.arrays, columns.texts
        nodes = Nodes.of(rows, texts["part"])
        peers = self._ideals.peers(rows, texts["op"], nodes)
        equal = np.array_equal(nodes.raw_ns, nodes.length_ns)
        raw_ns = nodes.length_ns if equal else nodes.raw_ns
        self._lengths.append((nodes.length_ns, raw_ns, peers))
        arrays = {
            "ranks": rows["rank"][nodes.rows],
            "stages": rows["stage"][nodes.rows],
            "replicas": rows["replica"][nodes.rows],
            "batches": rows["micro_batch"][nodes.rows],
            "kinds": self._numbered_kinds(nodes.kinds, texts["kind"]),
            "peers": peers,
            "length_ns": nodes.length_ns,
        }
        streams = bool((arrays["replicas"] >= 0).all())
        self.streams &= streams
        for begin, end in pairwise([*nodes.first.tolist(), len(nodes.rows)]):
            part = slice(begin, end)
            low, high = np.searchsorted(nodes.after[0], [begin, end])
            after = nodes.after[0][low:high] - begin, nodes.after[1][low:high] - begin
            groups = np.where(nodes.groups[part] < 0, -1, nodes.groups[part] - begin)
            before = [
                np.where(array[part] < 0, -1, array[part] - begin)
                for array in (nodes.prev, nodes.senders)
            ]
            graph = paper_graph = Graph.of(before, after, np.ascontiguousarray(groups[:, :2]))
            if streams and (groups[:, 0] != groups[:, 2]).any():
                alone = np.column_stack([groups[:, 2], np.full_like(groups[:, 2], -1)])
                paper_graph = Graph.of([], after, alone)
            (delayed_ns,) = graph.times(nodes.length_ns[part], delays=nodes.delay_ns[part])
            of_step = {name: array[part] for name, array in arrays.items()}
            if not equal:
                of_step["raw_ns"] = raw_ns[part]
            graphs = {"graph": graph}
            if paper_graph is not graph:
                graphs["paper_graph"] = paper_graph
            number = int(rows["step"][nodes.rows[begin]])
            self._append(of_step, graphs, number=number, delayed_ns=delayed_ns)

    def finish(self) -> None:
        """Compute the ideals: all steps of the run are there."""
        lengths, raw, peers = zip(*self._lengths, strict=True)
        self._lengths.clear()
        length_ns = np.concatenate(lengths)
        equal = all(one is other for one, other in zip(lengths, raw, strict=True))
        raw_ns = length_ns if equal else np.concatenate(raw)
        del lengths, raw
        self._ideals.fill(length_ns, raw_ns, np.concatenate(peers))

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self._steps)

    def __getitem__(self, place: int) -> Step:
        """Return a step of a finished run; threads may do so at once."""
        stored, ordered, others = self._steps[place]
        arrays: dict[str, Any] = self._file.read(stored)
        graphs = {
            name: Graph(
                **{part: arrays.pop(f"{name}.{part}") for part in GRAPH_ARRAYS}, ordered=known
            )
            for name, known in ordered.items()
        }
        return Step(
            graph=graphs["graph"],
            paper_graph=graphs.get("paper_graph", graphs["graph"]),
            raw_ns=arrays.pop("raw_ns", arrays["length_ns"]),
            ideals=self._ideals,
            **others,
            **arrays,
        )

    def __iter__(self) -> Iterator[Step]:
        """Yield the steps of a finished run."""
        return map(self.__getitem__, range(len(self)))

    def _append(self, arrays: Arrays, graphs: Mapping[str, Graph], **others: int | None) -> None:
        of_graphs = {
            f"{name}.{part}": getattr(graph, part)
            for name, graph in graphs.items()
            for part in GRAPH_ARRAYS
        }
        stored = self._file.write({**arrays, **of_graphs})
        ordered = {name: graph.ordered for name, graph in graphs.items()}
        self._steps.append((stored, ordered, others))

    def _numbered_kinds(self, kinds: Int32s, names: Sequence[str]) -> Int32s:
        """Return the numbers of kinds in the run."""
        numbers = np.zeros(len(names), np.int32)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            numbers[kind] = self._kinds.setdefault(names[kind], len(self._kinds))
        return numbers[kinds]
