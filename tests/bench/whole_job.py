"""The whole job, from text to figures: tracelake, and what a user would write instead.

`run` is the nightly command, with its page; `ingest`, `build` and `report` are its steps, as
commands of their own, on runs of growing size. polars and duckdb read the same files and compute
three figures alone: bubbles, bus bandwidth and the slowest rank (tests/bench/analyses.py). All must
give the same three.
The trace of one rank is a real step of the corpus, again and again at later times.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from tests.bench import analyses, answers
from tests.bench.analyses import ANALYSES, Figures
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.measure import Candidate, WrongAnswerError, median, run_rounds, tracelake, warm
from tests.bench.throughput import warm_kernels
from tests.bench.trees import SLOW_RANK, TENSOR_PARALLEL, Tree, dense_trace, many_ranks

NAME = "whole_job"
_SMALLER = (50_000_000, 200_000_000, 800_000_000)
_OURS = """
    SELECT
        r.label, b.ratio, c.busbw_p50_gbps, s.rank, s.slowdown
    FROM runs AS r
    JOIN (SELECT run_id, avg(bubble_ratio) AS ratio FROM rank_bubbles GROUP BY run_id) AS b
        USING (run_id)
    JOIN (
        SELECT run_id, arg_max(busbw_p50_gbps, calls) AS busbw_p50_gbps FROM collective_bandwidth
        WHERE collective = 'all_reduce' AND group_kind = 'tp' AND busbw_p50_gbps > 1 GROUP BY run_id
    ) AS c USING (run_id)
    JOIN (
        SELECT run_id, arg_max(rank, slowdown) AS rank, max(slowdown) AS slowdown
        FROM straggler_ranks GROUP BY run_id
    ) AS s USING (run_id)
"""


def run(settings: Settings) -> list[Result]:
    """Measures four runs of 64 ranks in several sizes, and a trace of one rank of many steps."""
    warm_kernels(settings, "rank_trace")
    smaller = [size for size in _SMALLER if size < settings.size_bytes]
    rows = [row for size in smaller for row in _runs(settings, size, rivals=False)]
    rows += _runs(settings, settings.size_bytes, rivals=settings.rivals)
    tree = dense_trace(settings.work, settings.size_bytes)
    if tree:
        rows += _one_rank(settings, tree)
    return rows


def _runs(settings: Settings, size_bytes: int, *, rivals: bool) -> Iterator[Result]:
    tree = many_ranks(settings.work, size_bytes, small=settings.tiny)
    warm(tree.paths())
    expected = analyses.by_duckdb(tree.path, TENSOR_PARALLEL)
    if {figures[2] for figures in expected.values()} != {SLOW_RANK}:
        raise WrongAnswerError(f"{expected}: rank {SLOW_RANK} is slow")

    def ours(lake: Path) -> None:
        with duckdb.connect(lake / "warehouse.duckdb", read_only=True) as connection:
            rows = connection.execute(_OURS).fetchall()
        _compare({job: rest for job, *rest in rows}, expected)

    def peer(folder: Path, output: str) -> None:
        del folder
        _compare(json.loads(output), expected)

    peers = [
        Candidate(name, lambda _, name=name: _analysis(name, tree.path), peer)  # type: ignore[misc]
        for name in ANALYSES
    ]
    case = f"{tree.runs} runs, {tree.files // tree.runs} ranks each"
    return _measure(settings, case, tree, ours, peers if rivals else [])


def _one_rank(settings: Settings, tree: Tree) -> Iterator[Result]:
    warm(tree.paths())

    def complete(lake: Path) -> None:
        answers.check_count(lake, tree.rows)

    return _measure(settings, "one rank", tree, complete, [], steps=not settings.tiny)


def _analysis(name: str, folder: Path) -> list[str | Path]:
    return [sys.executable, "-m", analyses.__name__, name, folder, str(TENSOR_PARALLEL)]


def _compare(found: Figures, expected: Figures) -> None:
    """Compare figures by job.

    Raises:
        WrongAnswerError: They differ by more than what floating-point times in ms lose.
    """
    same = found.keys() == expected.keys() and all(
        math.isclose(a, b, rel_tol=1e-6)
        for job, figures in expected.items()
        for a, b in zip(found[job], figures, strict=True)
    )
    if not same:
        raise WrongAnswerError(f"{found} are not the figures {expected}")


def _measure(
    settings: Settings,
    case: str,
    inputs: Tree,
    check: Callable[[Path], None],
    peers: list[Candidate],
    *,
    steps: bool = True,
) -> Iterator[Result]:
    def whole(folder: Path) -> list[str | Path]:
        return tracelake("run", inputs.path, "--lake", folder / "whole", "--quiet")

    def step(folder: Path, *command: str | Path) -> list[str | Path]:
        return tracelake(*command, "--lake", folder / "lake", "--quiet")

    tree, amount = settings.tree, inputs.size_bytes / 1e6
    of_steps = [
        Candidate("ingest", lambda folder: step(folder, "ingest", inputs.path), tree=tree),
        Candidate("build", lambda folder: step(folder, "build"), tree=tree),
        Candidate("report", lambda f: step(f, "report", "-o", f / "page.html"), tree=tree),
    ]
    candidates = [
        Candidate("run", whole, lambda folder, _: check(folder / "whole"), tree=tree),
        *(of_steps if steps else []),
        *peers,
    ]
    samples = run_rounds(candidates, repeat=settings.repeat, scratch=settings.scratch)
    for one in candidates:
        facts = {}
        if one.name == "build":
            facts["times_ingest"] = median(samples["build"]) / median(samples["ingest"])
        role = Role.PEER if one in peers else Role.OURS
        yield Result(
            NAME,
            f"{case}, {amount:,.0f} MB",
            one.name,
            role,
            samples[one.name],
            amount,
            facts=facts,
        )


BENCH = Bench(NAME, __doc__ or "", run)
