"""Replay the steps of runs: as they were, with ideal lengths, and with one rank or kind ideal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.models.replay.passes import Int32s, Int64s, link, order, times

INPUT = {
    "run_id": "VARCHAR",
    "step": "INTEGER",
    "node": "INTEGER",
    "rank": "INTEGER",
    "stage": "INTEGER",
    "kind": "VARCHAR",
    "after": "INTEGER[]",
    "group_1": "INTEGER",
    "group_2": "INTEGER",
    "length_ns": "BIGINT",
    "delay_ns": "BIGINT",
    "peer_ns": "BIGINT",
    "balanced_ns": "BIGINT",
    "raw_ns": "BIGINT",
    "mean_ns": "BIGINT",
}
"""Columns of the SELECT, ordered by run, step and node; nodes of a step count from 0."""

OUTPUT = ("run_id", "step", "scenario", "subject", "time_ns")
"""Columns of the result: how long each step takes in each scenario."""

ATTRIBUTED_FROM = 1.03
"""Ranks and kinds are replayed where equal peers would make the run faster by this factor."""
_REPLAYED_FROM = 0.001
_COLUMNS = 8

Row = tuple[str, int, str, str, int | None]


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
    def of(cls, after: pa.ListArray, groups: Int32s) -> Self:
        """Order a step.

        Args:
            after: Per node, those that end before it starts.
        """
        nodes = len(after)
        lengths = np.diff(after.offsets.to_numpy()).astype(np.int32)
        prev = np.ascontiguousarray(after.flatten().to_numpy(zero_copy_only=False), np.int32)
        prev_first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        numbers = np.arange(nodes, dtype=np.int32)
        next_first, next_listed = _linked(nodes, prev, np.repeat(numbers, lengths))
        member_first, member_listed = _linked(
            nodes, groups.ravel(), np.repeat(numbers, 2).astype(np.int32)
        )
        waiting = (groups >= 0).sum(axis=1).astype(np.int32)
        events, found = np.empty(2 * nodes, np.int32), np.zeros(1, np.int64)
        order(
            groups, next_first, next_listed, member_first, member_listed,
            lengths.copy(), waiting, np.diff(member_first).astype(np.int32), events, found,
        )  # fmt: skip
        return cls(prev_first, prev, groups, events if found[0] == 2 * nodes else None)

    def times(
        self,
        outside: Int64s,
        keys: Int32s | None = None,
        wanted: Sequence[int] = (-1,),
        inside: Int64s | None = None,
        delays: Int64s | None = None,
    ) -> list[int | None]:
        """Return how long the step takes: per wanted key, with its nodes' lengths from `inside`."""
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
    """The nodes of a step with what they could take."""

    number: int
    graph: Graph
    ranks: Int32s
    stages: Int32s
    kinds: Int32s
    lengths: dict[str, Int64s]


def replay(nodes: pa.Table) -> Iterator[Row]:
    """Yield the rows of `OUTPUT` for the rows of `INPUT`."""
    nodes = nodes.combine_chunks()
    run_ids = nodes["run_id"].combine_chunks().dictionary_encode()
    codes = run_ids.indices.to_numpy()
    for begin, end in _ranges(codes):
        run_id = run_ids.dictionary[int(codes[begin])].as_py()
        for step, scenario, subject, time_ns in _run(nodes.slice(begin, end - begin)):
            yield run_id, step, scenario, subject, time_ns


def steps_of(nodes: pa.Table) -> tuple[list[Step], list[str]]:
    """Return the steps of one run, and the names of its kinds by their number."""
    kinds = nodes["kind"].combine_chunks().dictionary_encode()
    kind_codes = kinds.indices.to_numpy().astype(np.int32)
    numbers = nodes["step"].to_numpy()
    ranks, stages, *sides = (
        nodes[name].fill_null(-1).to_numpy().astype(np.int32)
        for name in ("rank", "stage", "group_1", "group_2")
    )
    groups = np.column_stack(sides)
    lengths = {
        name: nodes[name].to_numpy().astype(np.int64)
        for name, kind in INPUT.items()
        if kind == "BIGINT"
    }
    after = nodes["after"].combine_chunks()
    steps = [
        Step(
            int(numbers[begin]),
            Graph.of(after.slice(begin, end - begin), np.ascontiguousarray(groups[begin:end])),
            ranks[begin:end],
            stages[begin:end],
            kind_codes[begin:end],
            {name: array[begin:end] for name, array in lengths.items()},
        )
        for begin, end in _ranges(numbers)
    ]
    return steps, kinds.dictionary.to_pylist()


def _run(nodes: pa.Table) -> Iterator[tuple[int, str, str, int | None]]:
    """Yield step, scenario, subject and time of one run."""
    steps, kinds = steps_of(nodes)
    sums = {"actual": 0, "peer": 0}
    for step in steps:
        x = step.lengths
        once = {
            "actual": step.graph.times(x["length_ns"]),
            "delayed": step.graph.times(x["length_ns"], delays=x["delay_ns"]),
            "peer": step.graph.times(x["peer_ns"]),
            "balanced": step.graph.times(x["balanced_ns"]),
            "raw": step.graph.times(x["raw_ns"]),
            "mean": step.graph.times(x["mean_ns"]),
        }
        for scenario, (time_ns,) in once.items():
            yield step.number, scenario, "", time_ns
            if scenario in sums:
                sums[scenario] += time_ns or 0
    if sums["actual"] < ATTRIBUTED_FROM * sums["peer"]:
        return
    ranks = _worth_a_replay(steps, sums["peer"])
    stages = sorted({int(stage) for step in steps for stage in np.unique(step.stages)} - {-1})
    for step in steps:
        subjects = (
            ("rank", step.ranks, {rank: str(rank) for rank in ranks}),
            ("stage", step.stages, {stage: str(stage) for stage in stages}),
            ("kind", step.kinds, dict(enumerate(kinds))),
        )
        real, ideal = step.lengths["length_ns"], step.lengths["peer_ns"]
        for scenario, keys, names in subjects:
            alone = step.graph.times(ideal, keys, [*names], real)
            fixed = step.graph.times(real, keys, [*names], ideal)
            for name, alone_ns, fixed_ns in zip(names.values(), alone, fixed, strict=True):
                yield step.number, scenario, name, alone_ns
                yield step.number, f"fix_{scenario}", name, fixed_ns


def _worth_a_replay(steps: Iterable[Step], peer_ns: int) -> list[int]:
    """Return the ranks whose operations can slow the run by 0.1 % or more.

    A length that grows by some time delays the end by at most that time.
    """
    excess: dict[int, int] = {}
    for step in steps:
        more = np.maximum(step.lengths["length_ns"] - step.lengths["peer_ns"], 0)
        ranks, places = np.unique(step.ranks, return_inverse=True)
        sums = np.zeros(len(ranks), np.int64)
        np.add.at(sums, places, more)
        for rank, added in zip(ranks.tolist(), sums.tolist(), strict=True):
            excess[rank] = excess.get(rank, 0) + added
    return sorted(rank for rank, added in excess.items() if added >= _REPLAYED_FROM * peer_ns)


def _ranges(values: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of equal neighbours."""
    bounds = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return itertools.pairwise(bounds)


def _linked(nodes: int, sources: Int32s, targets: Int32s) -> tuple[Int32s, Int32s]:
    first, place = np.empty(nodes + 1, np.int32), np.empty(nodes + 1, np.int32)
    listed = np.empty(len(sources), np.int32)
    link(nodes, sources, targets, first, listed, place)
    return first, listed
