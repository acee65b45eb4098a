"""How surely an injected straggler is named, and how often a healthy rank is: measured on runs.

    python -m tests.bench.recall [--runs N]

prints a table. Noise is the relative standard deviation of a rank's own compute in a step.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import open_warehouse

NOISES = (0.0, 0.01, 0.03, 0.05)
STEPS = (3, 10)
PEERS = (3, 7)
# 0: runs without a straggler. At 0.10 the slowdown is the threshold itself.
EXCESSES = (0.0, 0.10, 0.11, 0.20, 0.50)

# One layer and one micro-batch: an operation is two halves with noise of their own.
_FORWARD_MS, _BACKWARD_MS = 20.0, 40.0
_AVERAGED = ((_FORWARD_MS**2 + _BACKWARD_MS**2) / 2) ** 0.5 / (_FORWARD_MS + _BACKWARD_MS)


@dataclass(frozen=True)
class Setting:
    """A kind of run: data-parallel ranks, of which one computes `1 + excess` times as long."""

    steps: int
    peers: int
    noise: float
    excess: float


@dataclass(frozen=True)
class Outcome:
    """What the verdicts were in the runs of a setting.

    Attributes:
        named: Runs whose injected straggler has the verdict straggler.
        accused: Healthy ranks with that verdict.
        healthy: Healthy ranks that were judged.
    """

    setting: Setting
    runs: int
    named: int
    accused: int
    healthy: int


def grid() -> list[Setting]:
    """Every setting of the table."""
    return [Setting(*values) for values in product(STEPS, PEERS, NOISES, EXCESSES)]


def measure(folder: Path, settings: Sequence[Setting], runs: int) -> list[Outcome]:
    """Writes, ingests and judges that many runs of each setting.

    Args:
        folder: For the archives and the lake; empty.
    """
    slow = {}
    for number, setting in enumerate(settings):
        spec = _spec(setting, number, runs)
        write_archive(folder / "archive" / str(number), spec)
        slow[number] = spec.slow_rank
    run_ingest(folder / "archive", folder / "lake")
    lake = Lake.open(folder / "lake")
    build(lake)
    verdicts = open_warehouse(lake).execute(
        """
        SELECT split_part(any_value(s.path), '/', 1)::INTEGER, v.rank, v.verdict = 'straggler'
        FROM straggler_ranks AS v
        JOIN sources AS s USING (run_id)
        WHERE v.verdict <> 'not_comparable'
        GROUP BY v.run_id, v.rank, v.verdict
        """
    )
    judged: list[list[tuple[bool, bool]]] = [[] for _ in settings]
    for number, rank, named in verdicts.fetchall():
        judged[number].append((rank == slow[number], named))
    return [
        Outcome(
            setting,
            runs,
            named=sum(injected and named for injected, named in found),
            accused=sum(named and not injected for injected, named in found),
            healthy=sum(not injected for injected, _ in found),
        )
        for setting, found in zip(settings, judged, strict=True)
    ]


def table(outcomes: Iterable[Outcome]) -> str:
    """The outcomes of the whole grid in Markdown: a row per kind of run, a column per excess."""
    by_setting = {one.setting: one for one in outcomes}
    slow = [excess for excess in EXCESSES if excess]
    lines = [
        f"| steps | peers | noise | {' | '.join(f'+{x:.0%}' for x in slow)} | falsely accused |",
        "|-:" * (4 + len(slow)) + "|",
    ]
    for steps, peers, noise in product(STEPS, PEERS, NOISES):
        row = [by_setting[Setting(steps, peers, noise, excess)] for excess in EXCESSES]
        clean, *injected = row
        shares = (f"{one.named / one.runs:.0%}" for one in injected)
        false = f"{clean.accused} of {clean.healthy}"
        lines.append(f"| {steps} | {peers} | {noise:.0%} | {' | '.join(shares)} | {false} |")
    beside = [one for one in by_setting.values() if one.setting.excess]
    accused, healthy = (
        sum(getattr(one, name) for one in beside) for name in ("accused", "healthy")
    )
    runs = max(one.runs for one in by_setting.values())
    return "\n".join(
        [
            *lines,
            "",
            f"Each figure is of {runs} runs. Ranks beside a straggler that were accused with it or"
            f" instead: {accused} of {healthy}.",
        ]
    )


def _spec(setting: Setting, number: int, runs: int) -> Spec:
    ranks = setting.peers + 1
    return Spec(
        formats=("rank_trace",),
        seed=number,
        tp=1,
        pp=1,
        dp=ranks,
        layers=1,
        micro_batches=1,
        steps=setting.steps,
        forward_ms=_FORWARD_MS,
        backward_ms=_BACKWARD_MS,
        noise=setting.noise / _AVERAGED,
        slow_rank=number % ranks if setting.excess else None,
        slow_factor=1 + setting.excess,
        runs=runs,
    )


def main() -> None:
    """Measures the whole grid and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=40, help="Runs behind each figure.")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        print(table(measure(Path(folder), grid(), runs)))  # noqa: T201


if __name__ == "__main__":
    main()
