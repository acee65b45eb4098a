"""Contract of a bench, and the registry: every module of this folder that has a `BENCH`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.bench.measure import ROOT, Sample, median
from tests.parsing import large_formats


@dataclass(frozen=True)
class Settings:
    """How large and how often.

    Attributes:
        size_bytes: Of one large input.
        files: Of a tree of many small files.
        runs: Of a lake of many small runs.
        work: Keeps inputs between runs.
        tree: Checkout whose `tracelake` is measured.
        rivals: Whether peers and limits are measured too.
    """

    size_bytes: int = 512_000_000
    files: int = 10_000
    runs: int = 1_000
    repeat: int = 3
    tiny: bool = False
    work: Path = Path()
    tree: Path = ROOT
    rivals: bool = True

    @property
    def scratch(self) -> Path:
        """Folder for what candidates write."""
        return self.work / "scratch"

    @property
    def formats(self) -> list[str]:
        """Formats of a bench that does the same for each: the large ones; at the tiny size, one."""
        return list(large_formats())[: 1 if self.tiny else None]


def tiny_settings(work: Path) -> Settings:
    """Every bench in a second or two: shows that it runs, says nothing about speed."""
    return Settings(size_bytes=200_000, files=20, runs=4, repeat=1, tiny=True, work=work)


class Role(StrEnum):
    """What a row stands for: a limit is something no candidate that does the work can pass."""

    OURS = "tracelake"
    PEER = "peer"
    LIMIT = "limit"


@dataclass(frozen=True)
class Result:
    """One row of the table: a candidate in a case.

    Attributes:
        amount: Work of one run in `unit`; the rate is amount over wall time.
        facts: What else is known of the outcome, by name.
    """

    bench: str
    case: str
    candidate: str
    role: Role
    samples: Sequence[Sample]
    amount: float
    unit: str = "MB"
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Units per second, by the median wall time."""
        return self.amount / median(self.samples)


@dataclass(frozen=True)
class Bench:
    """A bench: its `doc` says what is measured and how to read it."""

    name: str
    doc: str
    run: Callable[[Settings], Sequence[Result]]


@functools.cache
def benches() -> Mapping[str, Bench]:
    """Every bench by name."""
    found = {}
    folder = str(Path(__file__).parent)
    for module in sorted(pkgutil.iter_modules([folder]), key=lambda m: m.name):
        if not module.name.startswith("__"):
            bench = getattr(importlib.import_module(f"tests.bench.{module.name}"), "BENCH", None)
            if isinstance(bench, Bench):
                found[bench.name] = bench
    return found
