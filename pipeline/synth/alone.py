"""Simulate a run of one rank that executes its compute alone; communication takes no time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tracelake.synth.schedule import Op, Span
from tracelake.synth.spec import Spec, ticks
from tracelake.synth.work import Part, backward, finalizers, forward, get_batch


def execute_alone(spec: Spec, run_number: int) -> list[Op]:
    """Return one micro-batch of each step of rank 0, which is on the first of several stages."""
    noise = random.Random(f"{spec.seed}/{run_number}/0")
    layers = spec.layers // spec.pp
    clock = 0
    ops: list[Op] = []

    def record(step: int, name: str, parts: Iterable[Part], spread: float) -> None:
        nonlocal clock
        clock = start = clock + ticks(spec.gap_ms)
        spans = []
        for part in parts:
            if isinstance(part, int):
                clock += round(part * (1 + spread * 3**0.5 * (2 * noise.random() - 1)))
            else:
                spans.append(Span(part, clock, clock, clock, 0))
        ops.append(Op(name, 0, step, 0, "", start, clock, tuple(spans)))

    for step in range(1, spec.steps + 1):
        record(step, "get_batch", get_batch(spec, first=True, last=False), 0.0)
        record(step, "forward_step", forward(spec, layers, first=True, last=False), spec.noise)
        gradients = backward(spec, layers, last=False)
        record(step, "backward_step", _one_after_the_other(gradients), spec.noise)
        for call in finalizers(spec, stage=0):
            own = Span(call, clock, clock, clock, 0)
            ops.append(Op(call.caller, 0, step, 0, "", clock, clock, own=own))
        record(step, "optimizer_step", [ticks(spec.optimizer_ms)], 0.0)
    return ops


def _one_after_the_other(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, int) or part.hidden is None:
            yield part
        else:
            tensor = (part.tensor or "").removesuffix("_async")
            yield replace(part, caller="allreduce", tensor=tensor, hidden=None)
            yield part.hidden
