"""How often clean nights raise an alarm, and how soon a true change does: measured on runs.

    python -m tests.bench.alarms [--nights N]

prints the tables of docs/alarms.md. Every run is text that is ingested and built. A verdict reads
only the runs before it, so one lake of N nights judges every one of them; `recurring` is of the
last night. Noise of n % is two things: every night's compute is scaled by a normal factor of that
standard deviation, and every operation by a uniform one of the same. Of logs whose steps become
slower it is a normal factor of every step.
"""

from __future__ import annotations

import argparse
import functools
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import open_warehouse

NOISES = (0.03, 0.05, 0.08)
# Noise of nights on which something changes, and of pairs of ranks.
CHANGED_NOISE, PAIR_NOISE = 0.03, 0.10
# Nights before a change: a drift needs 14 of them.
CLEAN = 20
# How much longer steps take from the middle of a log on, how many logs there are, and their steps.
JUMPS, LOGS, LOG_STEPS = (0.0, 0.15, 0.30), 100, 200

# Alarm -> nights that have it, by run. What a gate would hold against the run, and before it
# regressions that no gate fires at yet.
ALARMS = {
    "regressed": "SELECT run_id FROM run_history WHERE verdict = 'regressed'",
    "confirmed": "SELECT run_id FROM run_history WHERE confirmed",
    "drifted": "SELECT run_id FROM run_history WHERE drift = 'drifted'",
    "straggler": "SELECT run_id FROM straggler_ranks WHERE verdict = 'straggler'",
    "suspect": "SELECT run_id FROM straggler_ranks WHERE verdict = 'suspect'",
    "recurring": "SELECT last_slow_run FROM straggler_history WHERE verdict = 'recurring'",
}


@dataclass(frozen=True)
class Change:
    """What is different from a night on.

    Attributes:
        what: everything, nightly (everything, by as much more every night), or the last rank: rank
            where others do the same work, stage where none does.
        size: Of the change, 0.1 is 10 % more time.
    """

    what: str
    size: float
    night: int = CLEAN


@dataclass(frozen=True)
class Outcome:
    """Alarms of the nights of some jobs.

    Attributes:
        nights: Of each job.
        seen: Alarm -> job and night, by their numbers.
        compared: Ranks that `recurring` is said of.
    """

    noise: float
    change: Change | None
    jobs: int
    nights: int
    seen: Mapping[str, frozenset[tuple[int, int]]]
    compared: int

    def within(self, nights: int) -> float:
        """Share of the jobs that a gate has stopped so many nights after the change."""
        first = self.change.night if self.change else 0
        stopped = {
            job
            for name, seen in self.seen.items()
            for job, night in seen
            if name != "regressed" and first <= night < first + nights
        }
        return len(stopped) / self.jobs


def traced(
    tp: int, pp: int, dp: int, micro_batches: int, steps: int, *, busbw_gbps: float = 100.0
) -> Spec:
    """A job that is traced on every rank, one layer on each stage."""
    return Spec(
        formats=("rank_trace",),
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batches=micro_batches,
        steps=steps,
        log_steps=4,
        layers=pp,
        hidden=512,
        sequence=512,
        forward_ms=20.0,  # most of a step: noise of compute is noise of steps
        backward_ms=40.0,
        busbw_gbps=busbw_gbps,
    )


def jobs() -> list[Spec]:
    """The mix: data, tensor and pipeline parallel, one step and several, fast and slow links."""
    slow = functools.partial(traced, busbw_gbps=2.0)
    flat = [
        *(traced(1, 1, 2, *more) for more in ((1, 1), (8, 3))),
        *(traced(1, 1, 4, *more) for more in ((1, 1), (2, 5), (4, 3))),
        traced(1, 1, 8, 2, 1),
        *(traced(2, 1, 1, *more) for more in ((1, 1), (4, 3))),
        *(slow(4, 1, 1, *more) for more in ((1, 5), (2, 1))),
        *(slow(2, 1, 2, *more) for more in ((1, 1), (4, 3))),
    ]
    pipelines = [
        *(traced(1, 2, 1, *more) for more in ((1, 1), (4, 3), (8, 1))),
        *(slow(1, 4, 1, *more) for more in ((4, 1), (8, 3))),
        *(slow(1, 2, 2, *more) for more in ((2, 3), (4, 1))),
        *(slow(2, 2, 1, *more) for more in ((1, 1), (2, 3))),
    ]
    logs = [
        replace(traced(tp, pp, 1, m, 1), formats=("optimus",), layers=2 * pp)
        for tp, pp, m in ((1, 2, 4), (1, 4, 8), (2, 2, 2), (1, 2, 8))
    ]
    return [*flat, *pipelines, *logs]


def pairs(count: int) -> list[Spec]:
    """Two ranks that do the same work in one step, in so many configurations."""
    return [replace(traced(1, 1, 2, 1, 1), micro_batch_size=1 + n) for n in range(count)]


def measure(
    folder: Path, specs: Sequence[Spec], noise: float, nights: int, change: Change | None = None
) -> Outcome:
    """Writes, ingests and judges that many nights of every job.

    Args:
        folder: For the archives and the lake; empty.
        specs: Jobs of different configurations.
    """
    for number, spec in enumerate(specs):
        for night, tonight in enumerate(_nights(spec, number, noise, nights, change)):
            write_archive(folder / "archive" / str(number) / str(night), tonight)
    run_ingest(folder / "archive", folder / "lake", jobs=2)
    lake = Lake.open(folder / "lake")
    build(lake)
    con = open_warehouse(lake)
    place = con.execute(
        "SELECT run_id, split_part(min(path), '/', 1)::INTEGER,"
        " split_part(min(path), '/', 2)::INTEGER"
        " FROM sources GROUP BY run_id"
    )
    where = {run_id: (job, night) for run_id, job, night in place.fetchall()}
    seen = {
        name: frozenset(where[run_id] for (run_id,) in con.execute(sql).fetchall())
        for name, sql in ALARMS.items()
    }
    (compared,) = con.execute("SELECT count(*) FROM straggler_history").fetchone() or (0,)
    con.close()
    assert len(where) == len(specs) * nights
    return Outcome(noise, change, len(specs), nights, seen, compared)


def slowed(folder: Path, noise: float, jump: float, logs: int) -> tuple[int, int]:
    """Write and judge logs of steps that take so much longer from the middle on.

    Returns:
        Logs with the finding `slowed`, and those of them whose first slow step is named exactly.
    """
    middle = LOG_STEPS // 2
    for number in range(logs):
        rng = random.Random(f"{number}/{noise}/{jump}")
        path = folder / "archive" / f"job{number}" / "train.log"
        path.parent.mkdir(parents=True)
        path.write_text(
            "".join(
                f" iteration {step:8d}/{LOG_STEPS:8d} | elapsed time per iteration (ms):"
                f" {1000 * (1 + jump * (step > middle)) * rng.gauss(1, noise):.1f} |\n"
                for step in range(1, LOG_STEPS + 1)
            )
        )
    run_ingest(folder / "archive", folder / "lake", jobs=2)
    lake = Lake.open(folder / "lake")
    build(lake)
    con = open_warehouse(lake)
    (runs,) = con.execute("SELECT count(*) FROM run_summary WHERE steps > 0").fetchone() or (0,)
    found = con.execute("SELECT evidence FROM findings WHERE kind = 'slowed'").fetchall()
    con.close()
    assert runs == logs
    exact = sum(f" since step {middle + 1}" in evidence for (evidence,) in found)
    return len(found), exact


def _nights(
    spec: Spec, number: int, noise: float, nights: int, change: Change | None
) -> Iterator[Spec]:
    rng = random.Random(f"{number}/{noise}")
    for night in range(nights):
        factor = max(0.5, rng.gauss(1, noise))
        changed = change is not None and night >= change.night
        if change and changed and change.what == "everything":
            factor *= 1 + change.size
        if change and changed and change.what == "nightly":
            factor *= (1 + change.size) ** (night - change.night)
        slow = change is not None and changed and change.what in {"rank", "stage"}
        yield replace(
            spec,
            seed=300 * (number + 1) + night,  # a day later every night
            noise=noise,
            forward_ms=spec.forward_ms * factor,
            backward_ms=spec.backward_ms * factor,
            slow_rank=spec.world_size - 1 if slow else None,
            slow_factor=1 + change.size if change and slow else 1.0,
        )


def clean_table(outcomes: Iterable[Outcome]) -> str:
    """Alarms of nights on which nothing has changed."""
    lines = [
        "| noise | clean nights | regressed, not confirmed | confirmed | drifted | straggler"
        " | suspect | recurring at the end |",
        "|-:" * 8 + "|",
    ]
    for one in outcomes:
        counts = {name: len(seen) for name, seen in one.seen.items()}
        counts["regressed"] -= counts["confirmed"]
        *nightly, recurring = counts.values()
        lines.append(
            f"| {one.noise:.0%} | {one.jobs * one.nights:,} | {' | '.join(map(str, nightly))}"
            f" | {recurring} of {one.compared} |"
        )
    return "\n".join(lines)


def change_table(outcomes: Mapping[str, Outcome], within: Sequence[int]) -> str:
    """Shares of the jobs that a gate has stopped within some nights of a change."""
    lines = [
        f"| change | jobs | {' | '.join(f'within {n}' for n in within)} |",
        "|-|-:|" + "-:|" * len(within),
    ]
    for name, one in outcomes.items():
        shares = " | ".join(f"{one.within(n):.0%}" for n in within)
        lines.append(f"| {name} | {one.jobs} | {shares} |")
    return "\n".join(lines)


def slowed_table(folder: Path, logs: int) -> str:
    """Share of logs with the finding `slowed` and, in brackets, with the very step, by noise."""
    lines = [
        f"| from the middle of {LOG_STEPS} steps on | logs |"
        + "".join(f" {noise:.0%} noise |" for noise in NOISES),
        "|-|-:|" + "-:|" * len(NOISES),
    ]
    for jump in JUMPS:
        cells = []
        for noise in NOISES:
            found, exact = slowed(folder / f"{jump} {noise}", noise, jump, logs)
            cells.append(f"{found / logs:.0%}" + (f" ({exact / logs:.0%})" if found else ""))
        name = f"{jump:.0%} slower" if jump else "no change"
        lines.append(f"| {name} | {logs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures all of it and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nights", type=int, default=40, help="Clean nights of each of 25 jobs.")
    parser.add_argument("--work", type=Path, help="Folder for inputs; a temporary one by default.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        for part in _tables(Path(name), options.nights):
            print(part, flush=True)  # noqa: T201


def _tables(folder: Path, nights: int) -> Iterator[str]:
    clean = [measure(folder / f"clean {n}", jobs(), n, nights) for n in NOISES]
    yield clean_table(clean)
    two = measure(folder / "pairs", pairs(25), PAIR_NOISE, 5)
    accused = len(two.seen["recurring"])
    yield f"\nPairs at {PAIR_NOISE:.0%} noise, 5 nights: {accused} of {two.compared} recurring.\n"

    yield slowed_table(folder / "slowed", LOGS) + "\n"

    def changed(specs: Sequence[Spec], nights: int, change: Change) -> Outcome:
        return measure(folder / str(change), specs, CHANGED_NOISE, nights, change)

    some = jobs()[::4]
    alone = [
        spec for spec in jobs() if spec.pp > 1 and spec.tp * spec.dp == 1 and not _is_log(spec)
    ]
    beside = [spec for spec in jobs() if spec.tp * spec.dp > 1 and not _is_log(spec)][::2]
    yield change_table(
        {
            f"{what}, {size:.0%}": changed(specs, CLEAN + 5, Change(kind, size))
            for what, kind, specs in (
                ("everything is slower", "everything", some),
                ("one rank of several of its stage", "rank", beside),
                ("the only rank of a stage", "stage", alone),
            )
            for size in (0.05, 0.10, 0.20)
        },
        (1, 2, 5),
    )
    yield ""
    yield change_table(
        {
            f"{size:.1%} more every night": changed(some, 50, Change("nightly", size, 0))
            for size in (0.003, 0.008)
        },
        (15, 20, 30, 40, 50),
    )


def _is_log(spec: Spec) -> bool:
    return spec.formats == ("optimus",)


if __name__ == "__main__":
    main()
