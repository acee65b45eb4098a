"""Mutated files through the whole job: none may end it, or change the figures of another run.

Many files go through one job, beside one good run::

    python -m tests.fuzz.jobs COUNT [SEED]
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.mutate import mutate, put_number
from tests.fuzz.seeds import every_seed, file_name, seeds
from tests.poison import figures
from tests.traces import trace, trace_name, write
from tracelake.formats import formats
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.ingest.report import IngestReport
from tracelake.lake.store import Lake
from tracelake.models.build import BuildResult, build

_PER_JOB = 500


@dataclass(frozen=True)
class Campaign:
    """What came of the files.

    Attributes:
        runs: Runs that the files became.
        failed: Those that a parser or a model failed on: run, format or model, message.
        changed: Jobs in which the good run has other figures than alone.
    """

    files: int
    runs: int
    failed: list[tuple[str, str, str]]
    changed: int


def campaign(count: int, seed: int, per_job: int = _PER_JOB) -> Campaign:
    """Take mutated files through jobs; an error of a job ends it."""
    corpus = {name: seeds(name) for name in formats()}
    pool = [text for _, text in every_seed()]
    good = {f"good/{trace_name(rank)}": trace(rank, steps=4) for rank in range(2)}
    with tempfile.TemporaryDirectory() as folder:
        alone, *_ = _job(Path(folder), write(Path(folder, "in"), good))
        (run_id,) = alone.snapshot().runs
        expected = figures(alone, [run_id])
    runs, changed = 0, 0
    failed: list[tuple[str, str, str]] = []
    for start in range(0, count, per_job):
        with tempfile.TemporaryDirectory() as folder:
            inputs = write(Path(folder, "in"), good)
            for number in range(start, min(count, start + per_job)):
                random = Random(f"{seed}/{number}")
                name = random.choice([*corpus])
                text = mutate(random, random.choice(corpus[name]), pool)
                write(inputs, {f"{number}/{_name(random, file_name(name))}": text})
            lake, read, built = _job(Path(folder), inputs)
            runs += len(lake.snapshot().runs) - 1
            failed += [
                (one.run_id or one.input, one.format, f"{one.error} in {one.place}")
                for one in read.failures
            ]
            failed += [(run.run_id, run.failed_model, run.message) for run in built.failed]
            changed += figures(lake, [run_id]) != expected
        if count > per_job:
            done = min(count, start + per_job)
            print(f"{done:,} files, {runs:,} runs, {len(failed)} failed", flush=True)  # noqa: T201
    return Campaign(count, runs, failed, changed)


def _name(random: Random, name: str) -> str:
    """A name, in half of the cases with other numbers in it."""
    if random.random() < 0.5:
        return name
    changed = put_number(random, name.encode(), []).decode("utf-8", "replace")
    return changed[-200:].replace("/", "_").replace("\0", "_") or "x"


def _job(folder: Path, inputs: Path) -> tuple[Lake, IngestReport, BuildResult]:
    lake = Lake.create(folder / "lake")
    read = ingest([str(inputs)], lake, Options())
    return lake, read, build(lake)


def main() -> int:
    """Run the campaign and print its figures."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    begun = time.monotonic()
    done = campaign(count, seed)
    for failure in done.failed:
        print(*failure, sep=": ")  # noqa: T201
    left, seconds = len(done.failed), time.monotonic() - begun
    print(f"{done.files:,} files, {done.runs:,} runs, {left} left out, {seconds:,.0f} s")  # noqa: T201
    print(f"the good run changed in {done.changed} jobs")  # noqa: T201
    return 1 if done.failed or done.changed else 0


if __name__ == "__main__":
    sys.exit(main())
