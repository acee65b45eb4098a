"""Replay the steps of runs: as they were, with ideal lengths, and with one rank or kind ideal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from tracelake.models.columns import Columns
from tracelake.models.replay.nodes import NO_OPERATION, are
from tracelake.models.replay.passes import Int32s, Int64s
from tracelake.models.replay.published import published
from tracelake.models.replay.steps import Runs, Steps
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

_Timed = tuple[tuple[int, int], str, str, int | None]
"""Number of the run and of the step, scenario, subject and time."""
_Subjects = tuple[Mapping[int, str], Mapping[int, str], Mapping[int, str]]
"""Names of a run's ranks, stages and kinds by their number."""


def replay(
    pieces: Iterable[Columns], threads: int, folder: Path | None
) -> Iterator[tuple[str, int, str, str, int | None]]:
    """Yield the rows of `OUTPUT` for the rows of `INPUT`; threads replay several steps at once.

    Args:
        pieces: Whole runs, or whole steps of one; those of a run come one after the other.
        folder: See `steps_of`.
    """
    for _, parts in groupby(chain.from_iterable(map(_divided, pieces)), itemgetter(0)):
        with steps_of((columns for _, columns in parts), folder) as runs:
            for (run, step), scenario, subject, time_ns in _replayed(runs, threads):
                yield runs.names[run], step, scenario, subject, time_ns


@contextmanager
def steps_of(
    pieces: Iterable[Columns], folder: Path | None, *, together: bool = True
) -> Iterator[Runs]:
    """Yield the steps of runs.

    Args:
        folder: Holds what would be too much for memory; None for a temporary folder.
        together: See `Runs`.
    """
    with closing(ArrayFile(folder)) as file:
        runs = Runs(file, together=together)
        for columns in pieces:
            runs.add(columns)
        runs.finish()
        yield runs


def _divided(columns: Columns) -> Iterator[tuple[list[str], Columns]]:
    """Yield runs with their rows: those whose ranks have several streams alone."""
    run_ids, names = columns.arrays["run_id"], columns.texts["run_id"]
    present = np.unique(run_ids)
    operations = ~are(columns.arrays, columns.texts["part"], *NO_OPERATION)
    alone = np.unique(run_ids[operations & (columns.arrays["replica"] >= 0)])
    if len(present) == 1 or not len(alone):
        yield [names[run] for run in present], columns
        return
    for runs in (np.setdiff1d(present, alone), *alone[:, np.newaxis]):
        places = np.flatnonzero(np.isin(run_ids, runs))
        if len(places):
            arrays = {name: array[places] for name, array in columns.arrays.items()}
            yield [names[run] for run in runs], Columns(arrays, columns.texts)


def _replayed(runs: Runs, threads: int) -> Iterator[_Timed]:
    whole = _Whole()
    yield from chain.from_iterable(map(whole.replayed, runs))
    if runs.streams:
        yield from published(runs)
    subjects = whole.subjects(runs.kinds)

    def attribute(place: int) -> list[_Timed]:
        return _attributed(runs[place], subjects)

    slow = [place for place, own in enumerate(whole.runs) if not own.isdisjoint(subjects)]
    if slow:
        with ThreadPoolExecutor(threads, thread_name_prefix="replay") as pool:
            yield from chain.from_iterable(pool.map(attribute, slow))


class _Whole:
    """Replays steps with the lengths of all nodes alike, and sees what is worth replaying apart.

    Attributes:
        runs: Numbers of the runs of each `Steps`, in order.
    """

    def __init__(self) -> None:
        self.runs: list[set[int]] = []
        self._sums = {scenario: Counter[int]() for scenario in ("actual", "peer")}
        # Per run how much longer than their peers the operations of ranks, stages and kinds took.
        self._excess = [defaultdict[int, Counter[int]](Counter) for _ in range(3)]

    def replayed(self, steps: Steps) -> Iterator[_Timed]:
        """Yield the times of steps."""
        self.runs.append({run for run, _ in steps.numbers})
        # One pass for two lengths of all nodes.
        real = steps.graph.times(steps.peer_ns, wanted=(0, -1), inside=steps.length_ns)
        paper = steps.paper_graph.times(steps.mean_ns, wanted=(0, -1), inside=steps.raw_ns)
        balanced = steps.graph.times(steps.balanced_ns)
        times = {
            "actual": [actual for actual, _ in real],
            "delayed": [delayed for (delayed,) in steps.delayed_ns],
            "peer": [peer for _, peer in real],
            "balanced": [balanced for (balanced,) in balanced],
            "raw": [raw for raw, _ in paper],
            "mean": [mean for _, mean in paper],
        }
        for scenario, found in times.items():
            for number, time_ns in zip(steps.numbers, found, strict=True):
                yield number, scenario, "", time_ns
                if scenario in self._sums:
                    self._sums[scenario][number[0]] += time_ns or 0
        more = np.maximum(steps.length_ns - steps.peer_ns, 0)
        for keys, excess in zip(
            (steps.ranks, steps.stages, steps.kinds), self._excess, strict=True
        ):
            for run, key, added in _by_run(steps, keys, more):
                excess[run][key] += added

    def subjects(self, kinds: Sequence[str]) -> dict[int, _Subjects]:
        """Return what is replayed apart, of runs that equal peers would make faster.

        Args:
            kinds: Names of kinds by their number.
        """
        found = dict[int, _Subjects]()
        for run, peer in self._sums["peer"].items():
            if self._sums["actual"][run] >= ATTRIBUTED_FROM * peer:
                # A length that grows by some time delays the end by at most that time.
                least = _REPLAYED_FROM * peer
                ranks, stages, kinds_of_run = (excess[run] for excess in self._excess)
                found[run] = (
                    {rank: str(rank) for rank in sorted(ranks) if ranks[rank] >= least},
                    {stage: str(stage) for stage in sorted(stages.keys() - {-1})},
                    {kind: kinds[kind] for kind in sorted(kinds_of_run)},
                )
        return found


def _by_run(steps: Steps, keys: Int32s, values: Int64s) -> Iterator[tuple[int, int, int]]:
    """Yield run, key and the sum of the values, for every key that nodes of the run have."""
    # Of keys -1 is the least.
    pairs, places = np.unique((steps.runs.astype(np.int64) << 32) + keys + 1, return_inverse=True)
    sums = np.zeros(len(pairs), np.int64)
    np.add.at(sums, places, values)
    own = (pairs & 0xFFFFFFFF) - 1
    yield from zip((pairs >> 32).tolist(), own.tolist(), sums.tolist(), strict=True)


def _attributed(steps: Steps, subjects: Mapping[int, _Subjects]) -> list[_Timed]:
    """Return the times of steps with each subject of their run alone, and with all but it."""
    found = list[_Timed]()
    there = [(row, number) for row, number in enumerate(steps.numbers) if number[0] in subjects]
    keys_of = {"rank": steps.ranks, "stage": steps.stages, "kind": steps.kinds}
    for place, (scenario, keys) in enumerate(keys_of.items()):
        wanted = sorted({key for _, (run, _) in there for key in subjects[run][place]})
        real, ideal = steps.length_ns, steps.peer_ns
        both = (
            steps.graph.times(ideal, keys, wanted, real),
            steps.graph.times(real, keys, wanted, ideal),
        )
        for name, times in zip((scenario, f"fix_{scenario}"), both, strict=True):
            for row, number in there:
                names = subjects[number[0]][place]
                for key, time_ns in zip(wanted, times[row], strict=True):
                    if key in names:
                        found.append((number, name, names[key], time_ns))
    return found
