"""Simulate the ranks of a job, step by step: 1F1B, plain and interleaved, with messages and waits.

Order of passes: Narayanan et al. 2021, section 2.2; which calls are fused and how the phases are
named: Megatron's non-interleaved schedule. A send takes its transfer time and never waits for the
receiver; a receive ends a transfer time after both sides have started.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field

from tracelake.synth.network import Meet, Program, run
from tracelake.synth.spec import Spec, ticks
from tracelake.synth.work import (
    Call,
    Part,
    backward,
    finalizers,
    forward,
    get_batch,
    loss_func,
    message,
)


@dataclass(frozen=True, slots=True)
class Span:
    """A call in time, in ticks; `latest` is the last arrival, `cost` the time after it."""

    call: Call
    start: int
    end: int
    latest: int
    cost: int


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of a rank in time, in ticks.

    Attributes:
        number: Running number of the name within the step, from 0.
        spans: Calls inside, in order, without overlap.
        own: The call that the operation itself is.
        fused: One of the two lines of a send and a receive that are one call.
    """

    name: str
    rank: int
    step: int
    number: int
    phase: str
    start: int
    end: int
    spans: tuple[Span, ...] = ()
    own: Span | None = None
    fused: bool = False


@dataclass(slots=True)
class Worker:
    """One rank; appends to `ops` as its program runs."""

    spec: Spec
    rank: int
    noise: random.Random
    ops: list[Op] = field(default_factory=list)
    clock: int = 0
    _step: int = 0
    _phase: str = ""
    _numbers: Counter[str] = field(default_factory=Counter)
    _meetings: Counter[str] = field(default_factory=Counter)

    def program(self) -> Program:
        """Yield all steps of the job."""
        schedule = self._interleaved if self.spec.vpp > 1 else self._plain
        for step in range(1, self.spec.steps + 1):
            self._step = step
            self._numbers.clear()
            yield from schedule()
            yield from self._finalize()

    @property
    def _stage(self) -> int:
        return self.spec.stage(self.rank)

    def _plain(self) -> Program:
        spec, last = self.spec, self.spec.pp - 1
        warmup = min(last - self._stage, spec.micro_batches)
        steady = spec.micro_batches - warmup
        self._phase = "warmup"
        for batch in range(warmup):
            yield from self._passed("forward", 0, batch)
        self._phase = "help"
        if steady:
            yield from self._receive("forward", 0, warmup)
        self._phase = "steady"
        for batch in range(steady):
            yield from self._forward(0)
            if self._stage < last:
                yield from self._exchange("forward", warmup + batch, "backward", batch)
            yield from self._backward(0)
            if batch == steady - 1 or self._stage == 0:
                yield from self._send("backward", 0, batch)
            else:
                yield from self._exchange("backward", batch, "forward", warmup + batch + 1)
        self._phase = "cooldown"
        for batch in range(steady, spec.micro_batches):
            yield from self._passed("backward", 0, batch)

    def _interleaved(self) -> Program:
        p, chunks = self.spec.pp, self.spec.vpp
        total = self.spec.micro_batches * chunks
        warmup = min(total, (p - self._stage - 1) * 2 + (chunks - 1) * p)

        def passed(way: str, number: int) -> Program:
            chunk, batch = number // p % chunks, number // (p * chunks) * p + number % p
            yield from self._passed(way, chunk if way == "forward" else chunks - 1 - chunk, batch)

        self._phase = "warmup"
        for number in range(warmup):
            yield from passed("forward", number)
        self._phase = "steady"
        for number in range(total - warmup):
            yield from passed("forward", warmup + number)
            yield from passed("backward", number)
        self._phase = "cooldown"
        for number in range(total - warmup, total):
            yield from passed("backward", number)

    def _passed(self, way: str, chunk: int, batch: int) -> Program:
        """Yield a pass of a chunk between its receive and its send."""
        yield from self._receive(way, chunk, batch)
        yield from (self._forward if way == "forward" else self._backward)(chunk)
        yield from self._send(way, chunk, batch)

    def _ends(self, chunk: int) -> tuple[bool, bool]:
        """Return whether a chunk of this rank is the model's first, and its last."""
        spec = self.spec
        return (
            self._stage == 0 and chunk == 0,
            self._stage == spec.pp - 1 and chunk == spec.vpp - 1,
        )

    def _forward(self, chunk: int) -> Program:
        spec, (first, last) = self.spec, self._ends(chunk)
        layers = spec.layers // (spec.pp * spec.vpp)
        if first or last:
            yield from self._compute("get_batch", get_batch(spec, first=first, last=last), int)
        yield from self._compute(
            "forward_step", forward(spec, layers, first=first, last=last), self._scaled
        )
        if last:
            yield from self._compute("loss_func", loss_func(spec), int)

    def _backward(self, chunk: int) -> Program:
        layers = self.spec.layers // (self.spec.pp * self.spec.vpp)
        parts = backward(self.spec, layers, last=self._ends(chunk)[1])
        yield from self._compute("backward_step", parts, self._scaled)

    def _scaled(self, amount: int) -> int:
        slow = self.spec.slow_factor if self.rank == self.spec.slow_rank else 1.0
        # Uniform noise: its generator gives the same numbers on every platform and version.
        spread = self.spec.noise * 3**0.5 * (2 * self.noise.random() - 1)
        return round(amount * slow * (1 + spread))

    def _compute(self, name: str, parts: Iterable[Part], scaled: Callable[[int], int]) -> Program:
        start = self._begin()
        spans = []
        for part in parts:
            if isinstance(part, int):
                self.clock += scaled(part)
            else:
                hidden = None if part.hidden is None else scaled(part.hidden)
                spans.append((yield from self._meet(part, hidden)))
        self._record(name, start, spans=tuple(spans))

    def _meet(self, call: Call, hidden: int | None = None) -> Generator[Meet, int, Span]:
        members = self.spec.group(call.group, self.rank)
        self._meetings[call.group] += 1
        start, cost = self.clock, call.cost(self.spec, len(members))
        key = (call.group, members, self._meetings[call.group])
        latest = yield Meet(key, start, len(members))
        self.clock = max(latest + cost, start + (hidden or 0))
        return Span(call, start, self.clock, latest, cost)

    def _message(self, way: str, chunk: int, batch: int, *, sending: bool) -> Hashable:
        """Return key of a message over the border of a chunk; None at the ends of the model."""
        spec = self.spec
        position = chunk * spec.pp + self._stage
        ahead = (way == "forward") == sending
        border = position if ahead else position - 1
        if not 0 <= border < spec.pp * spec.vpp - 1:
            return None
        return self._step, way, border, self.rank % (spec.tp * spec.dp), batch

    def _send(self, way: str, chunk: int, batch: int) -> Program:
        key = self._message(way, chunk, batch, sending=True)
        if key is not None:
            start = self._begin()
            self._transfer(f"send_{way}", start, (yield Meet(key, start)))

    def _receive(self, way: str, chunk: int, batch: int) -> Program:
        key = self._message(way, chunk, batch, sending=False)
        if key is not None:
            start = self._begin()
            self._transfer(f"recv_{way}", start, (yield Meet(key)))

    def _exchange(self, out: str, out_batch: int, into: str, into_batch: int) -> Program:
        start = self._begin()
        yield Meet(self._message(out, 0, out_batch, sending=True), start)
        sent = yield Meet(self._message(into, 0, into_batch, sending=False))
        self._transfer(f"send_{out}", start, sent, fused=True)
        self._transfer(f"recv_{into}", start, sent, fused=True)

    def _transfer(self, name: str, start: int, sent: int, *, fused: bool = False) -> None:
        call = message(self.spec, name)
        latest, cost = max(start, sent), call.cost(self.spec, 2)
        self.clock = latest + cost
        self._record(name, start, own=Span(call, start, self.clock, latest, cost), fused=fused)

    def _finalize(self) -> Program:
        self._phase = "finalize"
        for call in finalizers(self.spec, self._stage):
            start = self._begin()
            self._record(call.caller, start, own=(yield from self._meet(call)))
        start = self._begin()
        if self.spec.synchronous_steps:
            everyone = self.spec.group("world", self.rank)
            self.clock = yield Meet(("world", self._step), start, len(everyone))
        self.clock += ticks(self.spec.optimizer_ms)
        self._record("optimizer_step", start)

    def _begin(self) -> int:
        self.clock += ticks(self.spec.gap_ms)
        return self.clock

    def _record(
        self,
        name: str,
        start: int,
        *,
        spans: tuple[Span, ...] = (),
        own: Span | None = None,
        fused: bool = False,
    ) -> None:
        number = self._numbers[name]
        self._numbers[name] += 1
        place = (name, self.rank, self._step, number, self._phase)
        self.ops.append(Op(*place, start, self.clock, spans, own, fused))


def simulate(spec: Spec, run_number: int) -> list[list[Op]]:
    """Execute a job; return the operations of every rank in order, in ticks from its start."""
    workers = [
        Worker(spec, rank, random.Random(f"{spec.seed}/{run_number}/{rank}"))
        for rank in range(spec.world_size)
    ]
    run({worker.rank: worker.program() for worker in workers})
    return [worker.ops for worker in workers]
