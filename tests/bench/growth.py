"""Cost per unit with larger files, and with lakes that already hold many runs.

One new run is ingested and built into lakes of growing size. It should cost its own time and a copy
of the warehouse file, which is measured too; a build with nothing to do costs less.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import prepare
from tests.bench.measure import Candidate, WrongAnswerError, complete, run_rounds, tracelake, warm
from tests.bench.throughput import ingest, warm_kernels
from tests.bench.trees import Tree, one_run, small_runs

NAME = "growth"
_SIZES = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
_LAKES = (10, 100, 1_000, 10_000)
_NEW_RANKS = 2
_QUERY = "SELECT count(*) AS runs, max(step_p50_ms) AS slowest_ms FROM run_summary"
_COPY = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])"


def run(settings: Settings) -> list[Result]:
    """Measures files up to `size_bytes` and lakes up to `runs`."""
    rows = []
    for name in settings.formats:
        warm_kernels(settings, name)
        sizes = _up_to(_SIZES, settings.size_bytes)
        rows += [_file(settings, name, size) for size in sizes]
    for runs in _up_to(_LAKES, settings.runs):
        rows += _lake(settings, small_runs(settings.work, runs))
    return rows


def _up_to(steps: tuple[int, ...], most: int) -> list[int]:
    return [step for step in steps if step <= most] or [most]


def _file(settings: Settings, name: str, size_bytes: int) -> Result:
    prepared = prepare(settings.work, name, size_bytes)
    warm([prepared.path])
    samples = run_rounds(
        [ingest(settings, prepared, prepared.path)],
        repeat=settings.repeat,
        scratch=settings.scratch,
    )
    amount = prepared.size_bytes / 1e6
    case = f"{name} of {amount:,.0f} MB"
    return Result(NAME, case, "tracelake", Role.OURS, samples["tracelake"], amount)


def _lake(settings: Settings, tree: Tree) -> Iterator[Result]:
    full = settings.scratch / "full"
    shutil.rmtree(full, ignore_errors=True)
    for command in (
        tracelake("ingest", tree.path, "--lake", full / "lake", "--quiet"),
        tracelake("build", "--lake", full / "lake", "--quiet"),
    ):
        complete(command, full, settings.tree)
    warehouse_mb = (full / "lake" / "warehouse.duckdb").stat().st_size / 1e6
    new = one_run(settings.work, _NEW_RANKS)
    candidates = _steps(full / "lake", tree, new)
    samples = run_rounds(
        [replace(one, tree=settings.tree) for one in candidates],
        repeat=settings.repeat,
        scratch=settings.scratch,
    )
    shutil.rmtree(full)
    for one in candidates:
        yield Result(
            NAME,
            f"lake of {tree.runs:,} runs",
            one.name,
            Role.LIMIT if one.name.startswith("copy") else Role.OURS,
            samples[one.name],
            1,
            "",
            {"warehouse_mb": warehouse_mb},
        )


def _steps(full: Path, tree: Tree, new: Tree) -> list[Candidate]:
    """What is done with a copy of the full lake, in this order."""

    def copied(folder: Path) -> None:
        shutil.copytree(full, folder / "lake", symlinks=True)

    def command(name: str) -> Callable[[Path], list[str | Path]]:
        return lambda folder: tracelake(name, "--lake", folder / "lake", "--quiet")

    def added(folder: Path, output: str) -> None:
        del output
        rows = {key: tree.rows[key] + new.rows[key] for key in tree.rows}
        answers.check_count(folder / "lake", {**rows, "runs": tree.runs + 1})

    def answered(folder: Path, output: str) -> None:
        del folder
        if f"\n{tree.runs + 1}," not in output.replace("\r", ""):
            raise WrongAnswerError(f"not {tree.runs + 1} runs: {output!r}")

    return [
        Candidate("build, nothing new", command("build"), before=copied),
        Candidate(
            "ingest one run",
            lambda folder: tracelake("ingest", new.path, "--lake", folder / "lake", "--quiet"),
            added,
        ),
        Candidate("build one run", command("build")),
        Candidate(
            "query a model",
            lambda folder: tracelake("query", _QUERY, "--lake", folder / "lake", "--format", "csv"),
            answered,
        ),
        Candidate(
            "copy of the warehouse",
            lambda folder: [
                sys.executable,
                "-c",
                _COPY,
                folder / "lake" / "warehouse.duckdb",
                folder / "copy.duckdb",
            ],
        ),
    ]


BENCH = Bench(NAME, __doc__ or "", run)
