"""Replay the steps of runs: as they were, with ideal lengths, and with one rank or kind ideal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np

from tracelake.models.columns import Columns
from tracelake.models.replay.published import published
from tracelake.models.replay.steps import Run, Step
from tracelake.models.replay.stored import ArrayFile

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
"""Ranks are replayed if their operations can slow the run by this part."""

_Timed = tuple[int, str, str, int | None]
"""Step, scenario, subject and time."""


def replay(
    pieces: Iterable[Columns], threads: int, folder: Path | None
) -> Iterator[tuple[str, *_Timed]]:
    """Yield the rows of `OUTPUT` for the rows of `INPUT`; threads replay several steps at once.

    Args:
        pieces: Whole steps; those of a run come one after the other.
        folder: See `steps_of`.
    """
    for run_id, parts in groupby(chain.from_iterable(map(_by_run, pieces)), itemgetter(0)):
        with steps_of((columns for _, columns in parts), folder) as run:
            for row in _replayed(run, threads):
                yield run_id, *row


@contextmanager
def steps_of(pieces: Iterable[Columns], folder: Path | None) -> Iterator[Run]:
    """Yield the steps of one run.

    Args:
        folder: Holds what would be too much for memory; None for a temporary folder.
    """
    with closing(ArrayFile(folder)) as file:
        run = Run(file)
        for columns in pieces:
            run.add(columns)
        run.finish()
        yield run


def _by_run(columns: Columns) -> Iterator[tuple[str, Columns]]:
    """Yield the identifiers of runs, each with its rows."""
    run_ids, names = columns.arrays["run_id"], columns.texts["run_id"]
    order = np.argsort(run_ids, kind="stable")
    bounds = np.searchsorted(run_ids[order], np.arange(len(names) + 1))
    for run, (begin, end) in enumerate(pairwise(bounds.tolist())):
        if end - begin == columns.rows:  # to pick rows would copy them
            yield names[run], columns
        elif begin < end:
            places = order[begin:end]
            arrays = {name: array[places] for name, array in columns.arrays.items()}
            yield names[run], Columns(end - begin, arrays, columns.texts)


def _replayed(run: Run, threads: int) -> Iterator[_Timed]:
    """Yield the times of one run."""
    sums = {"actual": 0, "peer": 0}
    excess: dict[int, int] = {}
    stages: set[int] = set()
    for step in run:
        # One pass for two lengths of all nodes.
        actual, peer = step.graph.times(step.peer_ns, wanted=(0, -1), inside=step.length_ns)
        raw, mean = step.paper_graph.times(step.mean_ns, wanted=(0, -1), inside=step.raw_ns)
        (balanced,) = step.graph.times(step.balanced_ns)
        once = {
            "actual": actual,
            "delayed": step.delayed_ns,
            "peer": peer,
            "balanced": balanced,
            "raw": raw,
            "mean": mean,
        }
        for scenario, time_ns in once.items():
            yield step.number, scenario, "", time_ns
            if scenario in sums:
                sums[scenario] += time_ns or 0
        for rank, added in _excess(step):
            excess[rank] = excess.get(rank, 0) + added
        stages.update(np.unique(step.stages).tolist())
    if run.streams:
        yield from published(run)
    if sums["actual"] < ATTRIBUTED_FROM * sums["peer"]:
        return
    # A length that grows by some time delays the end by at most that time.
    ranks = (rank for rank, added in excess.items() if added >= _REPLAYED_FROM * sums["peer"])
    named = [{key: str(key) for key in sorted(keys)} for keys in (ranks, stages - {-1})]
    subjects = (*named, dict(enumerate(run.kinds)))

    def attribute(place: int) -> list[_Timed]:
        return _attributed(run[place], subjects)

    with ThreadPoolExecutor(threads, thread_name_prefix="replay") as pool:
        yield from chain.from_iterable(pool.map(attribute, range(len(run))))


def _excess(step: Step) -> Iterator[tuple[int, int]]:
    """Yield each rank with how much longer than their peers its operations took."""
    ranks, places = np.unique(step.ranks, return_inverse=True)
    sums = np.zeros(len(ranks), np.int64)
    np.add.at(sums, places, np.maximum(step.length_ns - step.peer_ns, 0))
    yield from zip(ranks.tolist(), sums.tolist(), strict=True)


def _attributed(step: Step, subjects: Sequence[Mapping[int, str]]) -> list[_Timed]:
    """Return the times of a step with each subject alone, and with all but it.

    Args:
        subjects: Names of ranks, stages and kinds.
    """
    real, ideal = step.length_ns, step.peer_ns
    keys_of = {"rank": step.ranks, "stage": step.stages, "kind": step.kinds}
    found = list[_Timed]()
    for (scenario, keys), names in zip(keys_of.items(), subjects, strict=True):
        both = step.graph.apart(real, ideal, keys, [*names])
        for name, (alone_ns, fixed_ns) in zip(names.values(), both, strict=True):
            found.append((step.number, scenario, name, alone_ns))
            found.append((step.number, f"fix_{scenario}", name, fixed_ns))
    return found
