"""Start of a short command, and the first use of a format with compilation.

`python -c pass` is the limit. With cold kernels the cache folder is empty; without a folder the
cache cannot be written. Both compile the kernels of the format, if it has any. The tiny size uses
those that exist.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import Prepared, prepare
from tests.bench.measure import Candidate, WrongAnswerError, complete, run_rounds, tracelake
from tests.bench.throughput import ingest, warm_kernels
from tests.bench.trees import small_runs

NAME = "start_up"
_SMALL_BYTES = 100_000
_RUNS = 4
_CACHE = "NUMBA_CACHE_DIR"


def run(settings: Settings) -> list[Result]:
    """Measures short commands, then the first use of every format."""
    for name in settings.formats:
        warm_kernels(settings, name)
    rows = list(_commands(settings))
    for name in settings.formats:
        rows += _first_use(settings, prepare(settings.work, name, _SMALL_BYTES))
    return rows


def _commands(settings: Settings) -> Iterator[Result]:
    source = small_runs(settings.work, _RUNS).path

    def make(folder: Path) -> None:
        for command in (("ingest", source), ("build",)):
            line = tracelake(*command, "--lake", folder / "lake", "--quiet")
            complete(line, folder, settings.tree)

    def says(expected: str) -> Callable[[Path, str], None]:
        def check(folder: Path, output: str) -> None:
            del folder
            if expected not in output:
                raise WrongAnswerError(f"no {expected!r} in {output!r}")

        return check

    def query(folder: Path) -> list[str | Path]:
        sql = "SELECT count(*) AS runs FROM run_summary"
        return tracelake("query", sql, "--lake", folder / "lake", "--format", "csv")

    candidates = [
        Candidate("tracelake --help", lambda _: tracelake("--help"), says("ingest")),
        Candidate("tracelake query", query, says(str(_RUNS)), before=make),
        Candidate("import tracelake.cli", lambda _: [sys.executable, "-c", "import tracelake.cli"]),
        Candidate("python -c pass", lambda _: [sys.executable, "-c", "pass"]),
    ]
    yield from _results(settings, "a command", candidates)


def _first_use(settings: Settings, prepared: Prepared) -> Iterator[Result]:
    small = ingest(settings, prepared, prepared.path)

    def with_kernels(name: str, place: str) -> Candidate:
        """Ingest of a small file, its kernels in that place of the round's folder."""

        def command(folder: Path) -> list[str | Path]:
            cache = [] if settings.tiny else [f"{_CACHE}={folder / place}"]
            lake = folder / name
            return ["env", *cache, *tracelake("ingest", prepared.path, "--lake", lake, "-q")]

        def check(folder: Path, output: str) -> None:
            del output
            answers.check_lake(folder / name, prepared.format, prepared.expected)

        return Candidate(name, command, check, before=lambda folder: (folder / "file").touch())

    candidates = [
        small,
        with_kernels("cold kernels", "kernels"),
        with_kernels("no folder for kernels", "file/kernels"),
    ]
    # With the kernels that exist the last two do the same.
    measured = candidates[: 2 if settings.tiny else None]
    yield from _results(settings, f"first use of {prepared.format}", measured)


def _results(settings: Settings, case: str, candidates: Sequence[Candidate]) -> Iterator[Result]:
    placed = [replace(one, tree=settings.tree) for one in candidates]
    samples = run_rounds(placed, repeat=settings.repeat, scratch=settings.scratch)
    for one in placed:
        role = Role.LIMIT if one.name == "python -c pass" else Role.OURS
        yield Result(NAME, case, one.name, role, samples[one.name], 1, "")


BENCH = Bench(NAME, __doc__ or "", run)
