"""Runs candidates in turn, each as a whole process, and holds their answers against the reference.

    samples = run_rounds([first, second], repeat=3, scratch=folder)

Rounds go A B C, A B C: what disturbs the machine for a while disturbs all of them. A candidate's
check runs outside the timer, in every round; a wrong answer ends the bench.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LAUNCH = Path(__file__).with_name("launch.py")
_READ_AT_ONCE = 1 << 20


class WrongAnswerError(Exception):
    """A candidate did not give what the input says."""


@dataclass(frozen=True)
class Sample:
    """One run of a candidate.

    Attributes:
        peak_bytes: Resident memory of its largest process at its peak.
        output: Standard output and error.
    """

    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int
    output: str = field(default="", compare=False, repr=False)

    @property
    def cpu_s(self) -> float:
        """User and system time."""
        return self.user_s + self.system_s


@dataclass(frozen=True)
class Candidate:
    """A command to measure.

    Attributes:
        command: The command line, given the folder of the round; candidates of one round share it.
        check: Given the round's folder and what was printed; raises `WrongAnswerError`.
        before: Done before the timer starts, given the round's folder.
        tree: Checkout whose code is run.
    """

    name: str
    command: Callable[[Path], Sequence[str | Path]]
    check: Callable[[Path, str], None] = lambda folder, output: None  # noqa: ARG005
    before: Callable[[Path], None] = lambda folder: None  # noqa: ARG005
    tree: Path = ROOT


def run_rounds(
    candidates: Sequence[Candidate], *, repeat: int, scratch: Path
) -> dict[str, list[Sample]]:
    """Runs all candidates in turn, so many times.

    Args:
        scratch: A folder of it is made for each round, and removed after it.

    Raises:
        WrongAnswerError: A candidate failed, or its answer is not the expected one.
    """
    samples: dict[str, list[Sample]] = {one.name: [] for one in candidates}
    for number in range(repeat):
        folder = scratch / f"round{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for candidate in candidates:
            candidate.before(folder)
            sample = _run(candidate, folder)
            candidate.check(folder, sample.output)
            samples[candidate.name].append(sample)
        shutil.rmtree(folder)
    return samples


def complete(command: Sequence[str | Path], folder: Path, tree: Path = ROOT) -> str:
    """Runs a command outside any measurement; what it printed.

    Args:
        folder: For the launcher's files; made if it is not there.

    Raises:
        WrongAnswerError: It failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return _run(Candidate("preparation", lambda _: command, tree=tree), folder).output


def tracelake(*arguments: str | Path) -> list[str | Path]:
    """Command line of the `tracelake` command of the candidate's checkout."""
    return [sys.executable, "-c", "from tracelake.cli import main; main()", *arguments]


def warm(paths: Iterable[Path]) -> None:
    """Reads files once, so that every candidate finds them in memory."""
    buffer = bytearray(_READ_AT_ONCE)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def own_times(action: Callable[[], object], times: int = 1) -> dict[str, float]:
    """What a `Sample` says of doing something in this process, on average; memory is its peak."""
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(times):
        action()
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_s": wall / times,
        "user_s": (after.ru_utime - before.ru_utime) / times,
        "system_s": (after.ru_stime - before.ru_stime) / times,
        "peak_bytes": after.ru_maxrss * 1024,
    }


def median(samples: Sequence[Sample]) -> float:
    """Median wall time in seconds."""
    return statistics.median(sample.wall_s for sample in samples)


def _run(candidate: Candidate, folder: Path) -> Sample:
    report, output = folder / "launch.json", folder / "launch.txt"
    command = [str(part) for part in candidate.command(folder)]
    subprocess.run(
        [sys.executable, "-I", "-S", _LAUNCH, report, output, *command],
        cwd=candidate.tree,
        env={**os.environ, "PYTHONPATH": str(candidate.tree / "src")},
        check=True,
    )
    said = json.loads(report.read_text(encoding="utf-8"))
    text = output.read_text(encoding="utf-8", errors="replace")
    if code := said.pop("exit_code"):
        raise WrongAnswerError(f"{candidate.name} ended with {code}:\n{text}")
    return Sample(**said, output=text)
