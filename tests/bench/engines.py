"""The same archive with each engine: this machine alone, and workers of a Dask cluster.

A candidate's wall time is that of the whole process. Further columns divide it: start of the
cluster, ingest, build, and the round trip of an empty job. Efficiency is the time of one job
or worker over twice that of two; it includes the command's own work (planning, committing and the
models over all runs).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.many_files import ranks
from tests.bench.measure import Candidate, Sample, run_rounds, warm
from tests.bench.throughput import warm_kernels
from tests.bench.trees import Tree, rank_files, small_runs
from tracelake.execution.cluster import Workers, dask_workers
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build

NAME = "engines"
_CANDIDATES = ("local 1", "local 2", "dask 1", "dask 2")
_EMPTY_JOBS = 200


def run(settings: Settings) -> list[Result]:
    """Measures runs of many files, and many runs of few."""
    warm_kernels(settings, "rank_trace")
    trees = [rank_files(settings.work, settings.files)]
    if not settings.tiny:
        trees.append(small_runs(settings.work, settings.runs))
    return [row for tree in trees for row in _measure(settings, tree)]


def _measure(settings: Settings, tree: Tree) -> Iterator[Result]:
    warm(tree.paths())
    # Starting clusters is nearly all of the tiny bench: one of each engine shows that it runs.
    names = _CANDIDATES[:: 2 if settings.tiny else None]
    candidates = [_candidate(name, settings, tree) for name in names]
    samples = run_rounds(candidates, repeat=settings.repeat, scratch=settings.scratch)
    facts = {name: _facts(samples[name]) for name in names}
    for engine in () if settings.tiny else ("local", "dask"):
        one, two = facts[f"{engine} 1"], facts[f"{engine} 2"]
        for step in ("ingest", "build"):
            two[f"efficiency_of_{step}"] = one[f"s_{step}"] / (2 * two[f"s_{step}"])
    for name in names:
        yield Result(
            NAME,
            f"{tree.runs:,} runs, {tree.files:,} files",
            name,
            Role.OURS,
            samples[name],
            tree.size_bytes / 1e6,
            facts=facts[name],
        )


def _candidate(name: str, settings: Settings, tree: Tree) -> Candidate:
    def command(folder: Path) -> list[str | Path]:
        return [sys.executable, "-m", __name__, *name.split(), tree.path, folder / name]

    def check(folder: Path, output: str) -> None:
        del output
        ranks(folder / name, tree)

    return Candidate(name, command, check, tree=settings.tree)


def _facts(samples: Sequence[Sample]) -> dict[str, float]:
    said = [json.loads(sample.output) for sample in samples]
    return {key: statistics.median(one[key] for one in said) for key in said[0]}


def _nothing() -> None:
    """The job that does nothing."""


def _main(engine: str, width: str, source: str, lake: str) -> None:
    """Brings an archive into a lake and its warehouse; prints seconds by step."""
    said = {}
    begins = time.perf_counter()
    asked = nullcontext() if engine == "local" else dask_workers(None, int(width))
    with asked as workers:
        if workers is not None:
            said["s_start"] = time.perf_counter() - begins
        begins = time.perf_counter()
        opened = Lake.create(lake)
        ingest([source], opened, Options(), jobs=int(width), workers=workers)
        said["s_ingest"] = time.perf_counter() - begins
        begins = time.perf_counter()
        build(opened, threads=int(width) if workers is None else None, workers=workers)
        said["s_build"] = time.perf_counter() - begins
        if workers is not None:
            said["ms_per_empty_job"] = _round_trip(workers) * 1e3
    sys.stdout.write(json.dumps(said))


def _round_trip(workers: Workers) -> float:
    """Seconds per job that does nothing, many submitted at once."""
    begins = time.perf_counter()
    for future in [workers.submit(_nothing) for _ in range(_EMPTY_JOBS)]:
        future.result()
    return (time.perf_counter() - begins) / _EMPTY_JOBS


BENCH = Bench(NAME, __doc__ or "", run)

if __name__ == "__main__":
    _main(*sys.argv[1:])
