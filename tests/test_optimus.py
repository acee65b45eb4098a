"""OptimusPrime logs: records in every spelling, ranks that write over each other, damage."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.formats import Claim, format_named, formats
from pipeline.formats import optimus as subject
from tests.parsing import ParsedRun, parse
from tests.reference import optimus as reference

FORMAT = "optimus"


def run(raw: bytes, *, path: str = "log.txt", block_size: int = 1 << 20) -> ParsedRun:
    return parse(FORMAT, {path: raw}, block_size=block_size).only


def rows(found: ParsedRun, table: str) -> list[dict[str, object]]:
    return [{k: v for k, v in r.items() if k != "source_id"} for r in found.rows(table)]


def assert_as_reference(raw: bytes, *, block_size: int = 1 << 20) -> ParsedRun:
    found = run(raw, block_size=block_size)
    expected = reference.read(raw)
    account = found.ledger.source(0)
    assert repr(rows(found, "layer_times")) == repr(_ordered(found, expected.layer_times))
    assert repr(rows(found, "train_steps")) == repr(_ordered(found, expected.train_steps))
    assert [r[1:4] for r in found.rejects()] == [r[:3] for r in expected.rejects]
    assert account.row_lines == expected.rows
    assert account.context_lines == expected.context
    assert account.irrelevant == expected.irrelevant
    assert found.facts.topology == expected.statements.topology
    assert found.facts.attributes == expected.statements.attributes
    assert found.facts.ended == (expected.statements.closed and expected.complete)
    return found


def _ordered(found: ParsedRun, expected: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows with their columns in the order of the table; repr tells nan from nan apart from 0."""
    table = "layer_times" if expected and "layer" in expected[0] else "train_steps"
    names = [name for name in found.tables[table].column_names if name != "source_id"]
    return [{name: row[name] for name in names} for row in expected]


# --- logs with known truth ------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Stages of a pipeline: rank, and the rows of (layer, calls) it prints."""

    stages: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    def writes(self, stage: int, step: int) -> list[str]:
        """Texts of a block as its rank writes them, each followed by a newline of its own."""
        rank, layers = self.stages[stage]
        block = [
            f"[rank:{rank} stage:{stage}] transformer-block(module) forward time"
            f" (no send/recv) - step {step}"
        ]
        for k, (layer, calls) in enumerate(layers):
            ns = time_of(stage, step, k)
            block.append(
                f"  layer[{layer}]: total={ns // 10**6}.{ns // 1000 % 1000:03d}ms,"
                f" ops={calls}, avg/op=0.100ms"
            )
        return block

    def truth(self, steps: int) -> set[tuple[int, int, int, str, int]]:
        return {
            (rank, stage, step, layer, time_of(stage, step, k))
            for step in range(1, steps + 1)
            for stage, (rank, layers) in enumerate(self.stages)
            for k, (layer, _) in enumerate(layers)
        }


def time_of(stage: int, step: int, k: int) -> int:
    """A time that names its row: no two rows of a log share one."""
    return ((step * 64 + stage) * 64 + k) * 1000


def job(rng: random.Random, *, halves: bool = False) -> Job:
    """Stages of a few layers; a layer may be cut by a boundary, and then cut in two halves."""
    count = rng.randint(2, 5)
    stages = []
    layer = 0
    for stage in range(count):
        rows = [("embed", 32)] if stage == 0 else []
        cut = layer > 0 and rng.random() < 0.5
        if cut:
            rows.append((str(layer - 1), 128 if halves else 32 + stage))
        for _ in range(rng.randint(0 if rows else 1, 4)):
            rows.append((str(layer), 256))
            layer += 1
        if stage == count - 1:
            rows.append(("lm_head", 32))
        stages.append((stage * 2, tuple(rows)))
    return Job(tuple(stages))


def merge(writers: list[list[str]], rng: random.Random, *, newlines: bool) -> str:
    """Interleaves writes of processes as the system would: each text, each newline is a write."""
    queues = [[part for text in writer for part in (text, "\n")] for writer in writers]
    out = []
    while any(queues):
        queue = rng.choice([q for q in queues if q])
        out.append(queue.pop(0))
        # A newline mostly follows its text at once; often enough it does not.
        if queue and queue[0] == "\n" and not (newlines and rng.random() < 0.5):
            out.append(queue.pop(0))
    return "".join(out)


def progress(step: int) -> str:
    return (
        f"| epoch   1 | {step:5d}/  323 batches | lr 0.00 | ms/batch 1600.43 |"
        " loss  6.84 | ppl   933.51"
    )


def log(work: Job, steps: int, rng: random.Random, *, chance: float) -> str:
    """A log whose blocks are merged, in twos and threes, with some chance."""
    out = []
    for step in range(1, steps + 1):
        writers = [work.writes(stage, step) for stage in range(len(work.stages))]
        if step > 1:
            writers.append([progress(step - 1)])
        rng.shuffle(writers)
        while writers:
            together = rng.choice([2, 2, 3]) if rng.random() < chance else 1
            batch, writers = writers[:together], writers[together:]
            out.append(merge(batch, rng, newlines=True))
    return "".join(out)


def given_rows(found: ParsedRun) -> set[tuple[object, ...]]:
    return {
        (r["rank"], r["stage"], r["step"], r["layer"], r["total_ns"])
        for r in found.rows("layer_times")
    }


@pytest.mark.parametrize("seed", range(600))
def test_merged_blocks_are_given_to_their_ranks(seed: int) -> None:
    rng = random.Random(seed)
    work, steps = job(rng), rng.randint(6, 16)
    raw = log(work, steps, rng, chance=0.3).encode()
    found = assert_as_reference(raw, block_size=rng.choice([1, 700, 1 << 20]))
    truth = work.truth(steps)
    assert given_rows(found) == truth
    assert found.tables["layer_times"].num_rows == len(truth)
