"""Simulate a pipeline training job: forward times by stage and layer, and step times."""

from __future__ import annotations

import functools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
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

    step: int
    stage: int
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
        batches: One more than steps: the last batch is not profiled.
    """

    spec: Spec
    layers: Sequence[LayerTime]
    batches: Sequence[Batch]

    @functools.cached_property
    def blocks(self) -> dict[tuple[int, int], list[LayerTime]]:
        """Return what a stage's leader prints in a step, by step and stage."""
        blocks = defaultdict(list)
        for time in self.layers:
            blocks[time.step, time.stage].append(time)
        return blocks

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
    layers: list[LayerTime] = []
    batches = []
    for step in range(1, spec.log_steps + 2):
        mine = list(_layer_times(spec, step, noise))
        layers += mine if step <= spec.log_steps else []
        busiest = max(_stage_totals(mine).values())
        # The busiest stage sets the pace of a full pipeline; backward at the spec's ratio.
        pace = (1 + spec.backward_ms / spec.forward_ms) * (1 + (spec.pp - 1) / spec.micro_batches)
        length = busiest * pace + spec.optimizer_ms * 1e3
        times = tuple(round(length * (1 + noise.random() / 1e3), -1) for _ in range(spec.tp))
        loss = _LOSS_START + (_LOSS_END - _LOSS_START) * (step - 1) / spec.log_steps
        batches.append(Batch(tuple(int(time) for time in times), round(loss, 2)))
    return Log(spec, layers, batches)


def layer_step_rows(log: Log) -> list[Row]:
    """Return per step and layer: time and module calls, summed over stages."""
    rows: dict[tuple[int, str], Row] = {}
    for time in log.layers:
        row = rows.setdefault(
            (time.step, time.layer),
            {"step": time.step, "layer": time.layer, "stages": 0, "total_ns": 0, "ops": 0},
        )
        row["stages"] += 1
        row["total_ns"] += time.total_us * _NS_PER_US
        row["ops"] += time.ops
    return list(rows.values())


def modelled_rows(log: Log) -> list[Row]:
    """Return per step and stage: time t, and the bubble 1 - m t / (Σ t + (m-1) max t)."""
    m = log.spec.micro_batches
    rows = []
    for step, times in groupby(log.layers, attrgetter("step")):
        totals = _stage_totals(times)
        length = (sum(totals.values()) + (m - 1) * max(totals.values())) / m
        rows += [
            {
                "step": step,
                "stage": stage,
                "total_ns": total * _NS_PER_US,
                "bubble_ratio": 1 - total / length,
            }
            for stage, total in totals.items()
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


def _stage_totals(times: Iterable[LayerTime]) -> Counter[int]:
    totals = Counter[int]()
    for time in times:
        totals[time.stage] += time.total_us
    return totals


def _layer_times(spec: Spec, step: int, noise: random.Random) -> Iterator[LayerTime]:
    full = spec.forward_ms * 1e3 * spec.micro_batches * (_WARMUP_FACTOR if step == 1 else 1)

    def time(stage: int, layer: int | str, pieces: int, share: float) -> LayerTime:
        slow = layer == spec.slow_layer and spec.slow_layer_step in {None, step}
        spread = 1 + spec.noise * 3**0.5 * (2 * noise.random() - 1)
        total = full * share * spread * (spec.slow_layer_factor if slow else 1)
        return LayerTime(step, stage, str(layer), max(1, round(total)), pieces * spec.micro_batches)

    per_stage = spec.layers // spec.pp
    for stage in range(spec.pp):
        first, last = stage * per_stage, (stage + 1) * per_stage - 1
        if stage == 0:
            yield time(stage, "embed", 1, _EMBED_SHARE)
        else:
            yield time(stage, first - 1, 1, 1 / PIECES)
        for layer in range(first, last):
            yield time(stage, layer, PIECES, 1)
        if stage == spec.pp - 1:
            yield time(stage, last, PIECES, 1)
            yield time(stage, "lm_head", 1, _HEAD_SHARE)
        else:
            yield time(stage, last, PIECES - 1, 1 - 1 / PIECES)
