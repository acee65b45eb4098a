"""Trees of many files of 16 KB: rank traces of runs of 1,000 ranks, then logs and plans as runs.

The rerun finds nothing changed; its limit is a stat of every file. Compare the rates of files.
Parts are the Parquet files that the lake then has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import input_of
from tests.bench.measure import Candidate, WrongAnswerError, run_rounds, tracelake, warm
from tests.bench.throughput import warm_kernels
from tests.bench.trees import Tree, rank_files, single_files
from tracelake.formats import formats, one_run_per_file

NAME = "many_files"
_RERUN = "tracelake, rerun"
_STAT = """
import os, sys
found = 0
folders = [sys.argv[1]]
while folders:
    for entry in os.scandir(folders.pop()):
        if entry.is_dir():
            folders.append(entry.path)
        elif entry.name.endswith(".txt"):
            found += entry.stat().st_size > 0
print(found)
"""


def run(settings: Settings) -> list[Result]:
    """Measures a tree of rank files, and a tree of each format whose files are runs."""
    warm_kernels(settings, "rank_trace")
    rows = list(_measure(settings, "rank files", rank_files(settings.work, settings.files), ranks))
    for name in settings.formats:
        if formats()[name].group is one_run_per_file:
            warm_kernels(settings, name)
            tree = single_files(settings.work, name, settings.files // 10)
            rows += _measure(settings, f"{name} runs", tree, _single(name))
    return rows


def ranks(lake: Path, tree: Tree) -> None:
    """Rows and runs of a tree of rank files.

    Raises:
        WrongAnswerError: The lake has others.
    """
    answers.check_count(lake, {**tree.rows, "runs": tree.runs})


def _single(name: str) -> Callable[[Path, Tree], None]:
    def check(lake: Path, tree: Tree) -> None:
        answers.check_count(lake, {"runs": tree.runs})
        connection = answers.open_tables(lake, formats()[name].tables)
        for relation in input_of(name).relations:
            query = f"SELECT count(*) FROM ({relation.ours})"
            ((found,),) = connection.execute(query).fetchall()
            if found != tree.rows[relation.name]:
                raise WrongAnswerError(f"{lake}: {found} {relation.name}, not {tree.rows}")

    return check


def _measure(
    settings: Settings, case: str, tree: Tree, check: Callable[[Path, Tree], None]
) -> Iterator[Result]:
    warm(tree.paths())
    parts: list[int] = []

    def first_answer(folder: Path, output: str) -> None:
        del output
        check(folder / "lake", tree)
        parts.append(sum(1 for _ in (folder / "lake").rglob("*.parquet")))

    def rerun_answer(folder: Path, output: str) -> None:
        del output
        check(folder / "lake", tree)
        if sum(1 for _ in (folder / "lake").rglob("*.parquet")) != parts[-1]:
            raise WrongAnswerError(f"{folder}: a rerun over unchanged files has written parts")

    def command(folder: Path) -> list[str | Path]:
        return tracelake("ingest", tree.path, "--lake", folder / "lake", "--quiet")

    candidates = [
        Candidate("tracelake", command, first_answer, tree=settings.tree),
        Candidate(_RERUN, command, rerun_answer, tree=settings.tree),
        Candidate(
            "stat",
            lambda _: [sys.executable, "-I", "-S", "-c", _STAT, tree.path],
            lambda _, text: answers.check_text(str(tree.files), text),
        ),
    ]
    measured = candidates if settings.rivals else candidates[:2]
    samples = run_rounds(measured, repeat=settings.repeat, scratch=settings.scratch)
    for one in measured:
        yield Result(
            NAME,
            f"{tree.files:,} {case}"
            if one.name == "tracelake"
            else f"{tree.files:,} {case}, rerun",
            one.name,
            Role.LIMIT if one.name == "stat" else Role.OURS,
            samples[one.name],
            tree.files,
            "files",
            {"parts": parts[-1], "runs": tree.runs} if one.name == "tracelake" else {},
        )


BENCH = Bench(NAME, __doc__ or "", run)
