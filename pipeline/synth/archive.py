"""Write a whole archive with its answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tracelake.base.errors import UsageError
from tracelake.synth import log_text, rank_trace, training_log, truth
from tracelake.synth.alone import execute_alone
from tracelake.synth.plan import make_plan
from tracelake.synth.schedule import simulate
from tracelake.synth.spec import TICKS_PER_MS, Spec, ticks

ANSWERS = "answers.json"
_FIRST_DAY = datetime(2024, 1, 1, 6)
_UPTIME_MS = 4_000_000_000
Row = dict[str, Any]


def write_archive(directory: Path, spec: Spec) -> Row:
    """Write the files of a spec and `answers.json`; equal specs write equal bytes.

    The answers list the runs in the order of their dates. Of a run whose steps are repeated to
    reach `size_bytes`, the figures by step are those of the first `spec.steps` steps; `repeats`
    says how often they occur, and counts and calls are of the whole run.

    Args:
        directory: Created if missing; it must be empty.
        spec: What to write.

    Returns:
        The answers as written.

    Raises:
        UsageError: The directory is not empty, is a file, or cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError("not a directory", path=directory, hint="give a new directory") from None
    except OSError as error:
        raise UsageError(
            f"the directory cannot be made: {error.strerror}",
            path=directory,
            hint="give another directory",
        ) from error
    if any(directory.iterdir()):
        raise UsageError(
            "the directory is not empty", path=directory, hint="give a new one or empty it"
        )
    answers = {"spec": asdict(spec), "runs": list(_runs(directory, spec))}
    (directory / ANSWERS).write_text(f"{_json(answers)}\n", encoding="utf-8")
    return answers


def _runs(directory: Path, spec: Spec) -> Iterator[Row]:
    jobs = spec.clean_runs + spec.runs
    share = -(-spec.size_bytes // jobs)
    for number in range(jobs):
        job = spec if number >= spec.clean_runs else spec.healthy
        if "rank_trace" in spec.formats:
            yield _traces(directory, job, number, share)
        if "optimus" in spec.formats:
            yield _log(directory, job, number, share)
    if spec.simulated and "rank_trace" in spec.formats:
        yield _simulated(directory, spec, jobs)
    if "aicb_workload" in spec.formats:
        for experts in (False, True):
            yield _plan(directory, spec, -(-spec.size_bytes // 2), experts=experts)


def _traces(directory: Path, spec: Spec, number: int, size_bytes: int) -> Row:
    ranks = simulate(spec, number)
    templates = [
        rank_trace.template(spec, ops, _clock(spec, number, rank), simulated=False)
        for rank, ops in enumerate(ranks)
    ]
    # A whole number of ms: a repetition changes only the whole part of a time stamp.
    period_ms = -(-max(ops[-1].end for ops in ranks) // TICKS_PER_MS)
    repeats = max(1, -(-size_bytes // sum(len(one.render(0)) for one in templates)))
    files = []
    for rank, one in enumerate(templates):
        folder = Path(f"job{number:03d}", spec.host_name(rank) or "")
        path = _trace_path(spec, number, rank, folder)
        lines = (one.render(repeat * period_ms) for repeat in range(repeats))
        files.append(_write(directory, path, lines))
    rank_steps = truth.rank_step_rows(spec, ranks)
    return {
        "format": "rank_trace",
        "name": f"job{number:03d}",
        "files": files,
        "simulated": False,
        "steps": spec.steps * repeats,
        "repeats": repeats,
        "rows": {table: rows * repeats for table, rows in rank_trace.row_counts(ranks).items()},
        "theory": truth.theory(spec.pp, spec.micro_batches, spec.vpp),
        "slow_rank": spec.slow_rank,
        "slow_collective": spec.slow_collective,
        "clocks": truth.clock_rows(spec),
        "step_times": truth.step_rows(ranks),
        "rank_steps": rank_steps,
        "stage_bubbles": truth.stage_rows(rank_steps),
        "ranks": truth.rank_rows(spec, rank_steps),
        "collectives": truth.collective_rows(spec, ranks, repeats),
    }


def _simulated(directory: Path, spec: Spec, number: int) -> Row:
    ops = execute_alone(spec, number)
    lines = rank_trace.template(spec, ops, _clock(spec, number, 0), simulated=True).render(0)
    path = _trace_path(spec, number, 0, Path("simulated"))
    return {
        "format": "rank_trace",
        "name": "simulated",
        "files": [_write(directory, path, [lines])],
        "simulated": True,
        "steps": spec.steps,
        "rows": rank_trace.row_counts([ops]),
    }


def _log(directory: Path, spec: Spec, number: int, size_bytes: int) -> Row:
    log, stamp = training_log.simulate_log(spec, number), _stamp(spec, number)
    once, twice = (sum(map(len, log_text.chunks(log, stamp, times))) for times in (1, 2))
    repeats = 1 + max(0, -(-(size_bytes - once) // (twice - once)))
    steps = log_text.steps_written(spec, repeats)
    path = Path("optimus", log_text.file_name(spec, stamp))
    return {
        "format": "optimus",
        "name": path.stem,
        "files": [_write(directory, path, log_text.chunks(log, stamp, repeats))],
        "steps": steps,
        "repeats": repeats,
        "rows": {
            "layer_times": sum(map(len, log.blocks[1])) * steps,
            "train_steps": spec.tp * steps,
        },
        "theory": truth.theory(spec.pp, spec.micro_batches),
        "slow_layer": spec.slow_layer,
        "slow_layer_step": spec.slow_layer_step,
        "merged_step": spec.merge_block,
        "merged_ranks": [log.leader(stage) for stage in log.merged_stages or ()],
        "layer_steps": training_log.layer_step_rows(log),
        "stage_bubbles": training_log.modelled_rows(log),
        "progress": training_log.progress_rows(log, steps),
    }


def _plan(directory: Path, spec: Spec, size_bytes: int, *, experts: bool) -> Row:
    plan = make_plan(spec, experts=experts, size_bytes=size_bytes)
    path = Path("aicb_workload", plan.name)
    return {
        "format": "aicb_workload",
        "name": path.stem,
        "files": [_write(directory, path, plan.chunks())],
        "repeats": plan.repeats,
        "rows": {"workload_passes": 3 * plan.rows},
        "block_rows": len(plan.block),
        "theory": truth.theory(spec.pp, plan.repeats),
        "theory_simulator": truth.theory(spec.pp, plan.repeats, spec.layers // spec.pp),
        "passes": plan.pass_rows(),
        "traffic": plan.traffic_rows(),
    }


def _stamp(spec: Spec, number: int) -> datetime:
    return _FIRST_DAY + timedelta(days=spec.seed % 300 + number, seconds=spec.seed % 3600)


def _clock(spec: Spec, number: int, rank: int) -> Callable[[int], int]:
    """Return the clock of the rank's host: its time for a time after the job's start, in ticks."""
    booted = random.Random(f"{spec.seed}/{number}/clock").randrange(10**9)
    host = spec.host(rank)
    start = (_UPTIME_MS + booted) * TICKS_PER_MS + host * ticks(spec.clock_offset_ms)
    return lambda since: start + since + round(since * host * spec.clock_drift_ppm / 1e6)


def _trace_path(spec: Spec, number: int, rank: int, folder: Path) -> Path:
    stamp = f"{_stamp(spec, number):%Y%m%d%H%M%S}"
    return "rank_trace" / folder / rank_trace.file_name(spec, rank, stamp)


def _write(directory: Path, path: Path, chunks: Iterable[bytes]) -> Row:
    """Write a file; return its path, size and number of lines."""
    size = lines = 0
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
    return {"path": path.as_posix(), "bytes": size, "lines": lines}


def _json(value: Any, depth: int = 0) -> str:
    """Return JSON with one line per row of a table."""
    inner, outer = " " * (depth + 1), " " * depth
    table = isinstance(value, list) and value and isinstance(value[0], dict)
    if depth <= 2 and isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {_json(one, depth + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
    if table:
        lines = [f"{inner}{_json(one, depth + 1)}" for one in value]
        return "[\n" + ",\n".join(lines) + f"\n{outer}]"
    return json.dumps(value)
