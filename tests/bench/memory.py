"""Peak resident memory of whole processes: ingest at its defaults and under a ceiling, and build.

One large file, a tree of many files, one run of many ranks: the peak should be about the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import Fingerprint, prepare
from tests.bench.many_files import ranks
from tests.bench.measure import Candidate, complete, run_rounds, tracelake, warm
from tests.bench.throughput import warm_kernels
from tests.bench.trees import Tree, one_run, rank_files

NAME = "memory"
_OPTION = "--memory"
_ASK_LEAST = """
from tracelake.base.memory_limit import JOB_BYTES, PROCESS_BYTES
print((PROCESS_BYTES + JOB_BYTES) // 1_000_000)
"""
_RANKS = 4_000


@dataclass(frozen=True)
class _Case:
    name: str
    source: Path
    size_bytes: int
    check: Callable[[Path], None]
    builds: bool


def run(settings: Settings) -> list[Result]:
    """Measures every shape of input."""
    for name in settings.formats:
        warm_kernels(settings, name)
    ceiling = _least_ceiling(settings)
    return [row for case in _cases(settings) for row in _measure(settings, case, ceiling)]


def _least_ceiling(settings: Settings) -> str | None:
    """The lowest ceiling that the measured checkout takes, None if it takes none."""
    with tempfile.TemporaryDirectory() as folder:
        if _OPTION not in complete(tracelake("ingest", "--help"), Path(folder), settings.tree):
            return None
        asked = [sys.executable, "-c", _ASK_LEAST]
        return f"{complete(asked, Path(folder), settings.tree).strip()}MB"


def _cases(settings: Settings) -> Iterator[_Case]:
    for name in settings.formats:
        one = prepare(settings.work, name, settings.size_bytes)

        def same(lake: Path, name: str = name, expected: Fingerprint = one.expected) -> None:
            answers.check_lake(lake, name, expected)

        yield _Case(f"{name}, one file", one.path, one.size_bytes, same, builds=False)
    for tree, text in _trees(settings):

        def counted(lake: Path, tree: Tree = tree) -> None:
            ranks(lake, tree)

        yield _Case(text, tree.path, tree.size_bytes, counted, builds=True)


def _trees(settings: Settings) -> Iterator[tuple[Tree, str]]:
    if settings.tiny:
        yield one_run(settings.work, 2), "one run of 2 ranks"
        return
    yield rank_files(settings.work, settings.files), f"{settings.files:,} rank files"
    yield one_run(settings.work, _RANKS), f"one run of {_RANKS:,} ranks"


def _measure(settings: Settings, case: _Case, ceiling: str | None) -> Iterator[Result]:
    warm([case.source] if case.source.is_file() else case.source.rglob("*.txt"))

    def command(verb: str, lake: str, *options: str) -> Callable[[Path], list[str | Path]]:
        inputs = [case.source] if verb == "ingest" else []
        return lambda folder: tracelake(verb, *inputs, "--lake", folder / lake, "--quiet", *options)

    def rows_of(lake: str) -> Callable[[Path, str], None]:
        return lambda folder, _: case.check(folder / lake)

    candidates = [Candidate("ingest", command("ingest", "free"), rows_of("free"))]
    if case.builds:
        candidates.append(Candidate("build", command("build", "free")))
    if ceiling:
        options = (_OPTION, ceiling)
        named = f"{_OPTION} {ceiling}"
        under = command("ingest", "under", *options)
        candidates.append(Candidate(f"ingest {named}", under, rows_of("under")))
        if case.builds:
            candidates.append(Candidate(f"build {named}", command("build", "under", *options)))
    placed = [replace(one, tree=settings.tree) for one in candidates]
    samples = run_rounds(placed, repeat=settings.repeat, scratch=settings.scratch)
    for one in placed:
        size_mb = case.size_bytes / 1e6
        yield Result(NAME, case.name, one.name, Role.OURS, samples[one.name], size_mb)


BENCH = Bench(NAME, __doc__ or "", run)
