"""Base against change: the same benches for two checkouts, in turn, and what is only noise.

    python -m tests.bench compare BASE CHANGE [BENCH ...]

Every round measures base, change, and base again. The ratio is that of the medians; its band comes
from resampling the rounds, and the second base shows what the machine alone does: a change is
called faster or slower only where its whole band lies outside the band of base against itself, and
at least 2 % from 1.
"""

from __future__ import annotations

import io
import random
import statistics
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.contract import Bench, Role, Settings
from tests.bench.measure import ROOT

_SIDES = "base", "change", "again"
_RESAMPLES = 2_000
_BAND = 0.025, 0.975
_LEAST = 0.02

Key = tuple[str, str, str]
Times = Mapping[Key, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Verdict:
    """One candidate in a case, base against change.

    Attributes:
        ratio: Time of base over time of change: above 1 is faster.
        band: Where the ratio lies in 95 % of resampled rounds.
        noise: The same band of base against base.
    """

    key: Key
    base_s: float
    change_s: float
    ratio: float
    band: tuple[float, float]
    noise: tuple[float, float]

    @property
    def word(self) -> str:
        """Faster, slower or within noise."""
        low, high = min(self.noise[0], 1 - _LEAST), max(self.noise[1], 1 + _LEAST)
        if self.band[0] > high:
            return "faster"
        return "slower" if self.band[1] < low else "within noise"


def checkout(work: Path, name: str) -> Path:
    """The folder of a checkout, or one made of a commit below `work`.

    Raises:
        ValueError: There is neither.
    """
    if (Path(name) / "src" / "tracelake").is_dir():
        return Path(name).resolve()
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    commit = found.stdout.strip()
    if not commit:
        raise ValueError(f"{name} is neither a checkout nor a commit")
    tree = work / "trees" / commit
    if not tree.exists():
        # Not a worktree: that would stay in the repository's list after the folder is gone.
        archive = ["git", "archive", "--format=tar", commit]
        packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
        unfinished = tree.with_suffix(".part")
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(unfinished, filter="data")
        unfinished.rename(tree)
    return tree


def compare(
    settings: Settings, benches: Sequence[Bench], base: Path, change: Path
) -> list[Verdict]:
    """Runs the benches on both checkouts, as many rounds as the settings say."""
    trees = {"base": base, "change": change, "again": base}
    times: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(settings.repeat):
        for bench in benches:
            # Who comes first changes from round to round.
            for side in (*_SIDES[number % 3 :], *_SIDES[: number % 3]):
                once = replace(settings, repeat=1, rivals=False, tree=trees[side])
                for row in bench.run(once):
                    if row.role is Role.OURS:
                        key = row.bench, row.case, row.candidate
                        times[key][side] += [sample.wall_s for sample in row.samples]
    return list(judge(times))


def judge(times: Times) -> Iterator[Verdict]:
    """Verdicts on the wall times of every side, for what both checkouts could do."""
    for key, sides in times.items():
        if set(sides) != set(_SIDES):
            continue
        base, change, again = (list(sides[side]) for side in _SIDES)
        both = statistics.median(base + again)
        yield Verdict(
            key,
            base_s=both,
            change_s=statistics.median(change),
            ratio=both / statistics.median(change),
            band=_band(base + again, change),
            noise=_band(base, again),
        )


def markdown(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a table."""
    lines = [
        "| bench | case | candidate | base s | change s | base/change | band | noise | |",
        "|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    rows = (
        f"| {' | '.join(one.key)} | {one.base_s:.3f} | {one.change_s:.3f} | {one.ratio:.2f}"
        f" | {one.band[0]:.2f} to {one.band[1]:.2f} | {one.noise[0]:.2f} to {one.noise[1]:.2f}"
        f" | {one.word} |"
        for one in verdicts
    )
    return "\n".join([*lines, *rows])


def _band(base: Sequence[float], change: Sequence[float]) -> tuple[float, float]:
    """Where the ratio of medians lies when the rounds are drawn anew."""
    draw = random.Random(0)
    ratios = sorted(
        statistics.median(draw.choices(base, k=len(base)))
        / statistics.median(draw.choices(change, k=len(change)))
        for _ in range(_RESAMPLES)
    )
    return ratios[int(_BAND[0] * _RESAMPLES)], ratios[int(_BAND[1] * _RESAMPLES)]
