"""Scenarios of the published analysis (StragglerAnalysis), to be compared with its figures.

Its ideal is the mean over all stages for compute and the median for communication. Its slowdown of
a worker is the lesser of those of its data-parallel rank and of its stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tracelake.models.replay.passes import Int32s
from tracelake.models.replay.steps import Runs, Steps

_WORKERS = 0.03


def published(run: Runs) -> Iterator[tuple[tuple[int, int], str, str, int | None]]:
    """Yield step, scenario, subject and time: kinds, replicas and stages alone; what is fixed.

    Args:
        run: One run, each step by itself; they come with its number.
    """
    sums = Counter[tuple[str, int]]()
    last = max(int(step.stages.max()) for step in run)
    for step in run:
        (number,) = step.numbers
        real, ideal = step.raw_ns, step.mean_ns
        subjects = (
            ("paper_kind", step.kinds, dict(enumerate(run.kinds))),
            ("paper_replica", step.replicas, _names(step.replicas)),
            ("paper_stage", step.stages, _names(step.stages)),
        )
        for scenario, keys, names in subjects:
            (found,) = step.paper_graph.times(ideal, keys, [*names], real)
            for (key, name), time_ns in zip(names.items(), found, strict=True):
                sums[scenario, key] += time_ns or 0
                yield number, scenario, name, time_ns
        ((time_ns,),) = step.paper_graph.times(real, step.stages, [last], ideal)
        yield number, "paper_fix_stage", str(last), time_ns
    worst = _slowest_workers(run, sums)
    for step in run:
        (number,) = step.numbers
        chosen = np.isin(step.ranks, worst).astype(np.int32)
        ((time_ns,),) = step.paper_graph.times(step.raw_ns, chosen, [1], step.mean_ns)
        yield number, "paper_fix_workers", " ".join(map(str, sorted(worst))), time_ns


def _slowest_workers(run: Iterable[Steps], sums: Mapping[tuple[str, int], int]) -> list[int]:
    """Return 3 % of the workers, rounded up: the slowest, of equal ones the lowest ranks."""
    workers: dict[int, int] = {}
    for step in run:
        ranks, first = np.unique(step.ranks, return_index=True)
        for rank, place in zip(ranks.tolist(), first.tolist(), strict=True):
            replica, stage = int(step.replicas[place]), int(step.stages[place])
            workers[rank] = min(sums["paper_replica", replica], sums["paper_stage", stage])
    ranked = sorted(workers, key=lambda rank: (-workers[rank], rank))
    return ranked[: int(np.ceil(_WORKERS * len(ranked)))]


def _names(keys: Int32s) -> dict[int, str]:
    return {int(key): str(key) for key in np.unique(keys)}
