"""The same archive and lake on a disk and in an object store: time, and requests per run.

The store is moto, a server with the S3 protocol on this machine, which needs some milliseconds and
processor time per request. Compare the number of requests, and the time with 20 ms added to each,
as a nearby store needs. Archive and lake are both in the store.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.many_files import ranks
from tests.bench.measure import Candidate, Sample, run_rounds, warm
from tests.bench.throughput import warm_kernels
from tests.bench.trees import small_runs
from tests.object_store import ObjectStore, object_store
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.storage.objects import upload
from tracelake.storage.store_path import place_of
from tracelake.warehouse.warehouse import open_warehouse

NAME = "stores"
# Candidate -> seconds that the store adds to each request; None for a disk.
_CANDIDATES = {"disk": None, "store": 0.0, "store, 20 ms": 0.02}
_MOST_RUNS = 200
_QUESTION = "SELECT count(*), sum(total_ns) FROM layer_times"


def run(settings: Settings) -> list[Result]:
    """Measures runs of a file each."""
    warm_kernels(settings, "optimus")
    tree = small_runs(settings.work, min(settings.runs, _MOST_RUNS))
    warm(tree.paths())

    def candidate(name: str) -> Candidate:
        def command(folder: Path) -> list[str | Path]:
            return [sys.executable, "-m", __name__, name, tree.path, folder]

        def check(folder: Path, output: str) -> None:
            if _CANDIDATES[name] is None:
                ranks(folder / "lake", tree)
            else:
                assert json.loads(output)["runs"] == tree.runs

        return Candidate(name, command, check, tree=settings.tree)

    names = list(_CANDIDATES)[: 2 if settings.tiny else None]
    samples = run_rounds(
        [candidate(name) for name in names], repeat=settings.repeat, scratch=settings.scratch
    )
    return [
        Result(
            NAME,
            f"{tree.runs:,} runs, {tree.files:,} files",
            name,
            Role.OURS,
            samples[name],
            tree.size_bytes / 1e6,
            facts=_facts(samples[name]),
        )
        for name in names
    ]


def _facts(samples: Sequence[Sample]) -> dict[str, float]:
    said = [json.loads(sample.output) for sample in samples]
    return {key: statistics.median(one[key] for one in said) for key in said[0] if key != "runs"}


@contextmanager
def _step(name: str, said: dict[str, float], store: ObjectStore | None) -> Iterator[None]:
    """Notes seconds and requests of a step."""
    if store:
        store.count()
    began = time.perf_counter()
    yield
    said[f"s_{name}"] = time.perf_counter() - began
    for kind, count in sorted(store.count().items()) if store else ():
        said[f"{kind.lower()}_of_{name}"] = count


def _main(name: str, source: str, folder: str) -> None:
    """Brings an archive into a lake, asks of it, and does the same again."""
    delay = _CANDIDATES[name]
    with ExitStack() as held:
        store, archive, lake = None, source, f"{folder}/lake"
        if delay is not None:
            store = held.enter_context(object_store())
            os.environ |= {**store.environment, "XDG_CACHE_HOME": folder}
            store.make_bucket("bench")
            archive, lake = "s3://bench/archive", "s3://bench/lake"
            files = {p.relative_to(source).as_posix(): p for p in Path(source).rglob("*.*")}
            upload(place_of(archive), {n: p for n, p in files.items() if p.is_file()})
            store.faults(delay=delay)
        said: dict[str, float] = {}
        for again in ("", "_again"):
            with _step(f"ingest{again}", said, store):
                opened = Lake.create(lake)
                runs = len(ingest([archive], opened, Options()).runs)
            with _step(f"build{again}", said, store):
                build(opened)
        with _step("query", said, store), open_warehouse(opened) as con:
            con.execute(_QUESTION).fetchall()
        sys.stdout.write(json.dumps({**said, "runs": runs}))


BENCH = Bench(NAME, __doc__ or "", run)

if __name__ == "__main__":
    _main(*sys.argv[1:])
