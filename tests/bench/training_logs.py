"""Training logs of a trainer, of 20 jobs or of many short ones, beside a user's own script.

From bytes to Parquet. The script matches an expression for step, time or speed, and loss alone, in
one process. tracelake reads all that a record says, which steps it covers, and what its job says of
itself.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.measure import Candidate, WrongAnswerError, run_rounds, tracelake, warm

NAME = "training_logs"
_JOBS = 20
_SHORT = 50  # lines of a short job
_START = datetime(2026, 1, 5)
_PLAIN = """
import re, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
record = re.compile(sys.argv[3], re.M)
rows = steps = 0
for n, log in enumerate(sorted(Path(sys.argv[1]).iterdir())):
    step, speed, loss = zip(*record.findall(log.read_text()))
    columns = {"step": map(int, step), "speed": map(float, speed), "loss": map(float, loss)}
    table = pa.table({name: list(values) for name, values in columns.items()})
    pq.write_table(table, f"{sys.argv[2]}/{n}.parquet")
    rows += table.num_rows
    steps += sum(table["step"].to_pylist())
print(rows, steps)
"""


@dataclass(frozen=True)
class Trainer:
    """Prints a line per step.

    Attributes:
        line: Line of a step, when it ended, its milliseconds and its loss.
        expression: Finds step, milliseconds or speed, and loss.
    """

    name: str
    line: Callable[[int, datetime, float, float], str]
    expression: str


_TRAINERS = (
    Trainer(
        "Megatron-LM",
        lambda step, at, ms, loss: (
            f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/ 1000000 | consumed samples:"
            f" {512 * step:12d} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU"
            f" (TFLOP/s/GPU): {5e5 / ms:.1f} | learning rate: 1.500000E-04 | global batch size:"
            f"   512 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {loss / 3:.3f} |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |"
        ),
        r"iteration +(\d+)/.*per iteration \(ms\): ([\d.]+).*lm loss: (\S+)",
    ),
    Trainer(
        "torchtitan",
        lambda step, at, ms, loss: (
            f"[rank0]:[titan] {at:%Y-%m-%d %H:%M:%S},000 - root - INFO - step: {step:2d}  loss:"
            f" {loss:7.4f}  grad_norm: {loss / 3:7.4f}  memory: 22.11GiB(23.2%)  tps:"
            f" {1e7 / ms:,.0f}  tflops: {5e5 / ms:.2f}  mfu: 48.11%"
        ),
        r"step: +(\d+)  loss: +(?=.*tflops: ([\d.]+))(\S+)",
    ),
)


def run(settings: Settings) -> list[Result]:
    """Measures the logs of each trainer, and short ones of the first."""
    found: list[Result] = []
    for trainer, short in (*((one, False) for one in _TRAINERS), (_TRAINERS[0], True)):
        every = settings.size_bytes // len(trainer.line(1, _START, 1500.0, 2.5))
        jobs = max(1, every // _SHORT) if short else _JOBS
        name = f"{trainer.name}, {_SHORT} lines each" if short else trainer.name
        found += _measure(settings, trainer, name, jobs, every // jobs)
    return found


def _written(settings: Settings, trainer: Trainer, name: str, jobs: int, lines: int) -> Path:
    """Return a folder with the logs of jobs, written anew."""
    folder = settings.work / NAME / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    noise = np.random.default_rng(1)
    for job in range(jobs):
        ms, loss = noise.normal(1500, 15, lines), noise.normal(2.5, 0.1, lines)
        at = _START + timedelta(days=job)
        ends = np.cumsum(ms)
        text = "".join(
            f"{trainer.line(n + 1, at + timedelta(milliseconds=ends[n]), ms[n], loss[n])}\n"
            for n in range(lines)
        )
        (folder / f"pretrain-{job}.log").write_text(text)
    return folder


def _measure(
    settings: Settings, trainer: Trainer, name: str, jobs: int, lines: int
) -> Iterator[Result]:
    logs = _written(settings, trainer, name, jobs, lines)
    warm(logs.iterdir())
    expected = f"{jobs * lines} {jobs * lines * (lines + 1) // 2}"

    def check(folder: Path, _: str) -> None:
        query = "SELECT count(*) || ' ' || sum(step) FROM train_steps WHERE loss IS NOT NULL"
        ((found,),) = answers.open_tables(folder / "lake", ["train_steps"]).sql(query).fetchall()
        if found != expected:
            raise WrongAnswerError(f"{folder}: rows and steps are {found}, not {expected}")

    def check_plain(_: Path, output: str) -> None:
        if output.strip() != expected:
            raise WrongAnswerError(f"rows and steps are {output}, not {expected}")

    ours = Candidate(
        "tracelake",
        lambda folder: tracelake("ingest", logs, "--lake", folder / "lake", "--quiet"),
        check,
        tree=settings.tree,
    )
    plain = Candidate(
        "python_plain",
        lambda folder: [sys.executable, "-c", _PLAIN, logs, folder, trainer.expression],
        check_plain,
    )
    measured = [ours, plain] if settings.rivals else [ours]
    samples = run_rounds(measured, repeat=settings.repeat, scratch=settings.scratch)
    size = sum(log.stat().st_size for log in logs.iterdir())
    for one in measured:
        role = Role.OURS if one is ours else Role.PEER
        yield Result(NAME, name, one.name, role, samples[one.name], size / 1e6)


BENCH = Bench(NAME, __doc__ or "", run)
