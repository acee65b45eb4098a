"""Replay the steps of runs: as they were, with ideal lengths, and with one rank or kind ideal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.models.replay.graph import Graph, Step, values_of
from tracelake.models.replay.published import published

INPUT = {
    "run_id": "VARCHAR",
    "step": "INTEGER",
    "node": "INTEGER",
    "rank": "INTEGER",
    "stage": "INTEGER",
    "replica": "INTEGER",
    "micro_batch": "INTEGER",
    "kind": "VARCHAR",
    "prev": "INTEGER",
    "sender": "INTEGER",
    "after": "INTEGER[]",
    "group_1": "INTEGER",
    "group_2": "INTEGER",
    "paper_group": "INTEGER",
    "length_ns": "BIGINT",
    "delay_ns": "BIGINT",
    "peer_ns": "BIGINT",
    "balanced_ns": "BIGINT",
    "raw_ns": "BIGINT",
    "mean_ns": "BIGINT",
}
"""Columns of the SELECT, ordered by run, step and node; nodes count from 0, and -1 is none."""

OUTPUT = ("run_id", "step", "scenario", "subject", "time_ns")
"""Columns of the result: how long each step takes in each scenario."""

ATTRIBUTED_FROM = 1.03
"""Ranks and kinds are replayed where equal peers would make the run faster by this factor."""
_REPLAYED_FROM = 0.001

Row = tuple[str, int, str, str, int | None]


def replay(nodes: pa.Table) -> Iterator[Row]:
    """Yield the rows of `OUTPUT` for the rows of `INPUT`."""
    nodes = nodes.combine_chunks()
    run_ids = nodes["run_id"].combine_chunks().dictionary_encode()
    codes = values_of(run_ids.indices)
    for begin, end in _ranges(codes):
        run_id = run_ids.dictionary[int(codes[begin])].as_py()
        for step, scenario, subject, time_ns in _run(nodes.slice(begin, end - begin)):
            yield run_id, step, scenario, subject, time_ns


def steps_of(nodes: pa.Table) -> tuple[list[Step], list[str]]:
    """Return the steps of one run, and the names of its kinds by their number."""
    kinds = nodes["kind"].combine_chunks().dictionary_encode()
    kind_codes = values_of(kinds.indices)
    numbers = values_of(nodes["step"].combine_chunks())
    ranks, stages, replicas, batches, prev, sender, group_1, group_2, paper_group = (
        values_of(nodes[name].combine_chunks())
        for name in (
            *("rank", "stage", "replica", "micro_batch", "prev", "sender"),
            *("group_1", "group_2", "paper_group"),
        )
    )
    groups = np.column_stack([group_1, group_2])
    paper_groups = np.column_stack([paper_group, np.full_like(paper_group, -1)])
    published = bool((replicas >= 0).all())
    lengths = {
        name: values_of(nodes[name].combine_chunks())
        for name, kind in INPUT.items()
        if kind == "BIGINT"
    }
    after = nodes["after"].combine_chunks()

    def graphs(begin: int, end: int) -> tuple[Graph, Graph]:
        part = slice(begin, end)
        edges = [prev[part], sender[part]], after.slice(begin, end - begin)
        graph = Graph.of(*edges, groups[part])
        if not published or (groups[part] == paper_groups[part]).all():
            return graph, graph
        return graph, Graph.of([], edges[1], paper_groups[part])

    steps = [
        Step(
            int(numbers[begin]),
            *graphs(begin, end),
            ranks[begin:end],
            stages[begin:end],
            replicas[begin:end],
            batches[begin:end],
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
            "raw": step.paper_graph.times(x["raw_ns"]),
            "mean": step.paper_graph.times(x["mean_ns"]),
        }
        for scenario, (time_ns,) in once.items():
            yield step.number, scenario, "", time_ns
            if scenario in sums:
                sums[scenario] += time_ns or 0
    if (steps[0].replicas >= 0).all():
        yield from published(steps, kinds)
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
