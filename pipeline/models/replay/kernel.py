"""Replay the steps of runs: as they were, with ideal lengths, and with one rank or kind ideal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise

import numpy as np

from tracelake.models.columns import Columns
from tracelake.models.replay.graph import Graph, Step
from tracelake.models.replay.ideals import ideals
from tracelake.models.replay.nodes import Nodes
from tracelake.models.replay.passes import Int64s
from tracelake.models.replay.published import published

INPUT = {
    "run_id": "VARCHAR",
    "step": "INTEGER",
    "rank": "INTEGER",
    "seq": "BIGINT",
    "sub": "INTEGER",
    "op": "VARCHAR",
    "part": "VARCHAR",
    "kind": "VARCHAR",
    "comm": "BOOLEAN",
    "stage": "INTEGER",
    "chunk": "INTEGER",
    "replica": "INTEGER",
    "micro_batch": "INTEGER",
    "from_ns": "BIGINT",
    "to_ns": "BIGINT",
    "call": "UBIGINT",
    "sent_call": "UBIGINT",
    "tick_ns": "BIGINT",
    "source_rank": "INTEGER",
    "source_seq": "BIGINT",
}
"""Columns of the SELECT, in any order of rows. A row is an operation, or by its `part` about one:
`comm` is a call inside it; `message` one that comes before it, from the operation `source_rank` and
`source_seq`; `after` says that this operation ends before it starts. -1 is none, of calls 0."""

OUTPUT = ("run_id", "step", "scenario", "subject", "time_ns")
"""Columns of the result: how long each step takes in each scenario."""

ATTRIBUTED_FROM = 1.03
"""Ranks and kinds are replayed where equal peers would make the run faster by this factor."""
_REPLAYED_FROM = 0.001

Row = tuple[str, int, str, str, int | None]


def replay(columns: Columns, threads: int) -> Iterator[Row]:
    """Yield the rows of `OUTPUT` for the rows of `INPUT`; threads replay several steps at once."""
    run_ids, names = columns.arrays["run_id"], columns.texts["run_id"]
    order = np.argsort(run_ids, kind="stable")
    bounds = np.searchsorted(run_ids[order], np.arange(len(names) + 1))
    for run, (begin, end) in enumerate(pairwise(bounds.tolist())):
        if begin < end:
            # To pick the rows of a run copies them: the only run, often a large one, is whole.
            alone = end - begin == columns.rows
            steps, kinds = _steps(columns, slice(None) if alone else order[begin:end])
            for step, scenario, subject, time_ns in _run(steps, kinds, threads):
                yield names[run], step, scenario, subject, time_ns


def steps_of(columns: Columns) -> tuple[list[Step], list[str]]:
    """Return the steps of one run, and the names of its kinds by their number."""
    return _steps(columns, slice(None))


def _steps(columns: Columns, places: Int64s | slice) -> tuple[list[Step], list[str]]:
    """Return the steps of the run with the rows at some places, and the names of its kinds."""
    rows = {name: column[places] for name, column in columns.arrays.items()}
    nodes = Nodes.of(rows, columns.texts["part"])
    found = np.flatnonzero(np.bincount(nodes.kinds))
    kinds = np.searchsorted(found, nodes.kinds).astype(np.int32)
    keys = {
        name: rows[name][nodes.rows] for name in ("step", "rank", "stage", "replica", "micro_batch")
    }
    lengths = {
        "length_ns": nodes.length_ns,
        "delay_ns": nodes.delay_ns,
        "raw_ns": nodes.raw_ns,
        **ideals(rows, nodes),
    }
    published = bool((keys["replica"] >= 0).all())
    steps = []
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
        if published and (groups[:, 0] != groups[:, 2]).any():
            alone = np.column_stack([groups[:, 2], np.full_like(groups[:, 2], -1)])
            paper_graph = Graph.of([], after, alone)
        steps.append(
            Step(
                int(keys["step"][begin]),
                graph,
                paper_graph,
                keys["rank"][part],
                keys["stage"][part],
                keys["replica"][part],
                keys["micro_batch"][part],
                kinds[part],
                {name: array[part] for name, array in lengths.items()},
            )
        )
    return steps, [columns.texts["kind"][kind] for kind in found.tolist()]


def _run(
    steps: Sequence[Step], kinds: Sequence[str], threads: int
) -> Iterator[tuple[int, str, str, int | None]]:
    """Yield step, scenario, subject and time of one run."""
    sums = {"actual": 0, "peer": 0}
    for step in steps:
        x = step.lengths
        # One pass for two lengths of all nodes.
        actual, peer = step.graph.times(x["peer_ns"], wanted=(0, -1), inside=x["length_ns"])
        raw, mean = step.paper_graph.times(x["mean_ns"], wanted=(0, -1), inside=x["raw_ns"])
        (delayed,) = step.graph.times(x["length_ns"], delays=x["delay_ns"])
        (balanced,) = step.graph.times(x["balanced_ns"])
        once = {
            "actual": actual,
            "delayed": delayed,
            "peer": peer,
            "balanced": balanced,
            "raw": raw,
            "mean": mean,
        }
        for scenario, time_ns in once.items():
            yield step.number, scenario, "", time_ns
            if scenario in sums:
                sums[scenario] += time_ns or 0
    if (steps[0].replicas >= 0).all():
        yield from published(steps, kinds)
    if sums["actual"] < ATTRIBUTED_FROM * sums["peer"]:
        return
    ranks = _worth_a_replay(steps, sums["peer"])
    stages = sorted({int(stage) for step in steps for stage in np.unique(step.stages)} - {-1})
    named = [{key: str(key) for key in keys} for keys in (ranks, stages)]
    attribute = partial(_attributed, subjects=(*named, dict(enumerate(kinds))))
    with ThreadPoolExecutor(min(threads, len(steps)), thread_name_prefix="replay") as pool:
        yield from chain.from_iterable(pool.map(attribute, steps))


def _attributed(
    step: Step, subjects: Sequence[Mapping[int, str]]
) -> list[tuple[int, str, str, int | None]]:
    """Return step, scenario, subject and time: each subject alone, and all but it.

    Args:
        subjects: Names of ranks, stages and kinds.
    """
    real, ideal = step.lengths["length_ns"], step.lengths["peer_ns"]
    keys_of = {"rank": step.ranks, "stage": step.stages, "kind": step.kinds}
    found = []
    for (scenario, keys), names in zip(keys_of.items(), subjects, strict=True):
        alone = step.graph.times(ideal, keys, [*names], real)
        fixed = step.graph.times(real, keys, [*names], ideal)
        for name, alone_ns, fixed_ns in zip(names.values(), alone, fixed, strict=True):
            found.append((step.number, scenario, name, alone_ns))
            found.append((step.number, f"fix_{scenario}", name, fixed_ns))
    return found


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
