"""Simulate a pipeline training job: forward times by stage and layer, and step times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tracelake.synth.spec import Spec

# Leaf modules of a layer; the last one of a stage's last layer is on the next stage.
PIECES = 8
_NS_PER_US = 1_000
_WARMUP_FACTOR = 6
_LOSS_START, _LOSS_END = 10.5, 2.0
_EMBED_SHARE, _HEAD_SHARE = 0.05, 1.5
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A layer's forward modules on one stage in one step; time in µs, as printed."""

    layer: str
    total_us: int
    ops: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its progress record shows it: one time in µs per process that prints it."""

    times_us: tuple[int, ...]
    loss: float


@dataclass(frozen=True)
class Log:
    """A job before it is text.

    Attributes:
        blocks: What the leader of each stage prints, by step.
        batches: One more than steps: the last batch is not profiled.
    """

    spec: Spec
    blocks: Mapping[int, Sequence[Sequence[LayerTime]]]
    batches: Sequence[Batch]

    def leader(self, stage: int) -> int:
        """Return rank that prints for a stage."""
        return stage * self.spec.tp

    @property
    def merged_stages(self) -> tuple[int, int] | None:
        """Stages whose leaders print at the same time in step `merge_block`."""
        if self.spec.merge_block is None:
            return None
        return 0, 1 if self.spec.pp == 2 else self.spec.pp - 2

    def record(self, number: int) -> Batch:
        """Return the progress record of a 0-based batch; record 1 adds up two batches."""
        batch = self.batches[number]
        if number > 1:
            return batch
        before = self.batches[0]
        times = (a + b for a, b in zip(before.times_us, batch.times_us, strict=True))
        return Batch(tuple(times), round(before.loss + batch.loss, 2))


def simulate_log(spec: Spec, run_number: int) -> Log:
    """Return layer times of every stage and step, and the step times that follow from them."""
    noise = random.Random(f"{spec.seed}/{run_number}/log")
    blocks, batches = {}, []
    for step in range(1, spec.log_steps + 2):
        mine = list(_blocks(spec, step, noise))
        if step <= spec.log_steps:
            blocks[step] = mine
        busiest = max(map(_total, mine))
        # The busiest stage sets the pace of a full pipeline; backward at the spec's ratio.
        pace = (1 + spec.backward_ms / spec.forward_ms) * (1 + (spec.pp - 1) / spec.micro_batches)
        length = busiest * pace + spec.optimizer_ms * 1e3
        times = tuple(round(length * (1 + noise.random() / 1e3), -1) for _ in range(spec.tp))
        loss = _LOSS_START + (_LOSS_END - _LOSS_START) * (step - 1) / spec.log_steps
        batches.append(Batch(tuple(int(time) for time in times), round(loss, 2)))
    return Log(spec, blocks, batches)


def layer_step_rows(log: Log) -> list[Row]:
    """Return per step and layer: time and module calls, summed over stages."""
    rows: dict[tuple[int, str], Row] = {}
    for step, blocks in log.blocks.items():
        for time in chain(*blocks):
            new = {"step": step, "layer": time.layer, "stages": 0, "total_ns": 0, "ops": 0}
            row = rows.setdefault((step, time.layer), new)
            row["stages"] += 1
            row["total_ns"] += time.total_us * _NS_PER_US
            row["ops"] += time.ops
    return list(rows.values())


def modelled_rows(log: Log) -> list[Row]:
    """Return per step and stage: time t, and the bubble 1 - m t / (Σ t + (m-1) max t)."""
    m = log.spec.micro_batches
    rows = []
    for step, blocks in log.blocks.items():
        totals = list(map(_total, blocks))
        length = (sum(totals) + (m - 1) * max(totals)) / m
        rows += [
            {
                "step": step,
                "stage": stage,
                "total_ns": total * _NS_PER_US,
                "bubble_ratio": 1 - total / length,
            }
            for stage, total in enumerate(totals)
        ]
    return rows


def progress_rows(log: Log, steps: int) -> list[Row]:
    """Return per progress record of the first cycle and the last batch: times of copies, and loss.

    Args:
        steps: In the file; the number of its last record.
    """
    numbers = {number: number for number in range(1, log.spec.log_steps)}
    return [
        {
            "step": shown,
            "batches_covered": 2 if shown == 1 else 1,
            "step_times_ns": [time * _NS_PER_US for time in log.record(number).times_us],
            "loss": log.record(number).loss,
        }
        for shown, number in (numbers | {steps: log.spec.log_steps}).items()
    ]


def _total(block: Iterable[LayerTime]) -> int:
    return sum(time.total_us for time in block)


def _blocks(spec: Spec, step: int, noise: random.Random) -> Iterator[list[LayerTime]]:
    """Yield the layers of each stage."""
    full = spec.forward_ms * 1e3 * spec.micro_batches * (_WARMUP_FACTOR if step == 1 else 1)

    def time(layer: int | str, pieces: int, share: float) -> LayerTime:
        slow = layer == spec.slow_layer and spec.slow_layer_step in {None, step}
        spread = 1 + spec.noise * 3**0.5 * (2 * noise.random() - 1)
        total = full * share * spread * (spec.slow_layer_factor if slow else 1)
        return LayerTime(str(layer), max(1, round(total)), pieces * spec.micro_batches)

    per_stage = spec.layers // spec.pp
    for stage in range(spec.pp):
        first, last = stage * per_stage, (stage + 1) * per_stage - 1
        block = [time(first - 1, 1, 1 / PIECES) if stage else time("embed", 1, _EMBED_SHARE)]
        block += [time(layer, PIECES, 1) for layer in range(first, last)]
        if stage == spec.pp - 1:
            block += [time(last, PIECES, 1), time("lm_head", 1, _HEAD_SHARE)]
        else:
            block.append(time(last, PIECES - 1, 1 - 1 / PIECES))
        yield block
