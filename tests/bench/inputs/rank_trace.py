"""A rank of a dense model: one-forward-one-backward steps with tensor-parallel sub-operations.

The rank is the first of stage 0 of 4 (world 8, tp 2, 40 layers): what a public trace of that shape
prints, with more micro-batches, so that send and receive are fused in the steady phase. Every
duration is drawn anew; shapes, names and groups repeat as they do in real traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tests.bench.inputs import BenchInput, Integers, Piece, Relation, repeated

_TICKS_PER_MS = 100
_NS_PER_TICK = 10_000
_LAYERS = 10  # of this stage
_MICRO_BATCHES = 8
_WARMUP = 3  # stages behind this one
_START = 4_509_231_790_00
_STEPS_AT_ONCE = 64
_HIDDEN = (2048, 2, 5120)
_FLAT = (4096, 5120)
_DP_TEXT = "model_chunk.finish_grad_sync(), All-reduce / reduce-scatter across DP replicas"


@dataclass(frozen=True)
class _Call:
    """A sub-operation as it is printed; its typical duration in ms."""

    caller: str
    shape: tuple[int, ...]
    dtype: str
    tensor: str
    func: str
    ms: float


@dataclass(frozen=True)
class _Op:
    """An operation of a step.

    Attributes:
        ms: Typical duration.
        gap_ms: Before it; None for the second line of a fused send and receive.
    """

    name: str
    phase: str
    batch: int
    ms: float
    gap_ms: float | None = 0.12
    description: str = "None"
    group: str | None = None
    shape: tuple[int, ...] | None = None
    calls: tuple[_Call, ...] = ()


def _tokens() -> tuple[_Call, ...]:
    return (
        _Call("_broadcast", (2, 2048), "int64", "tokens", "broadcast", 0.03),
        _Call("_broadcast", (2, 1, 2048, 2048), "bool", "attention_mask", "broadcast", 0.09),
        _Call("_broadcast", (2, 2048), "int64", "position_ids", "broadcast", 0.06),
    )


def _forward_calls() -> tuple[_Call, ...]:
    embedding = _Call("_reduce", (2, 2048, 5120), "float32", "embedding_fwd", "allreduce", 0.67)
    linear = _Call("allreduce", _FLAT, "float32", "linear_fwd", "allreduce", 0.67)
    return embedding, *[linear] * (2 * _LAYERS)


def _backward_calls() -> tuple[_Call, ...]:
    linear = _Call("normlinear_bwd_async", _FLAT, "float32", "normlinear_bwd", "allreduce", 3.1)
    return (linear,) * (2 * _LAYERS)


def _step() -> list[_Op]:
    """The operations of a step, in order of their ends."""
    ops = []

    def forward(batch: int, phase: str) -> None:
        ops.append(_Op("get_batch", phase, batch, 0.87, calls=_tokens()))
        ops.append(_Op("forward_step", phase, batch, 209.5, calls=_forward_calls()))

    def backward(batch: int, phase: str) -> None:
        ops.append(_Op("backward_step", phase, batch, 430.8, calls=_backward_calls()))

    def transfer(name: str, batch: int, phase: str, ms: float, *, fused: bool = False) -> None:
        gap = None if fused else 0.12
        ops.append(_Op(name, phase, batch, ms, gap, group="pp", shape=_HIDDEN))

    for batch in range(_MICRO_BATCHES):
        phase = "warmup" if batch < _WARMUP else "steady"
        forward(batch, phase)
        transfer("send_forward", batch, phase, 0.57 if phase == "warmup" else 31.4)
        if phase == "steady":
            transfer("recv_backward", batch - _WARMUP, phase, 31.4, fused=True)
            backward(batch - _WARMUP, phase)
    for batch in range(_MICRO_BATCHES - _WARMUP, _MICRO_BATCHES):
        transfer("recv_backward", batch, "cooldown", 520.2)
        backward(batch, "cooldown")
    for name, ms, text, group, shape in (
        ("dp_allreduce", 12.15, _DP_TEXT, "dp", (1712942080,)),
        ("ep_allreduce", 3.97, "_allreduce_word_embedding_grads", "ep", (25216, 5120)),
        ("optimizer_step", 63.2, "None", None, None),
    ):
        ops.append(_Op(name, "finalize", 0, ms, description=text, group=group, shape=shape))
    return ops


def _text(op: _Op) -> str:
    """A line with `%s` for duration and stamp of the operation and of every sub-operation."""
    dtype = "torch.float32" if op.shape else None
    calls = ", ".join(
        f"'trace_src_func={c.caller},duration=%s,timestamp=%s,input__shape={list(c.shape)}"
        f",input__dtype=torch.{c.dtype},func_name={c.tensor},group=tp,comm_func={c.func}'"
        for c in op.calls
    )
    return (
        f"rank:0:{op.name}(stage_id=0,batch_id={op.batch},mg_state={op.phase},duration=%s"
        f",description={op.description},group_kind={op.group}"
        f",input__shape={list(op.shape) if op.shape else None},input__dtype={dtype}"
        f",timestamp=%s,sub_operations=[{calls}])\n"
    )


class _Steps:
    """Draws steps: the text, and the rows that it says."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._ops = _step()
        self._calls = [call for op in self._ops for call in op.calls]
        self._owner = np.repeat(np.arange(len(self._ops)), [len(op.calls) for op in self._ops])
        self._template = "".join(map(_text, self._ops))
        self._now = _START
        self._lines = 0

    def draw(self, steps: int) -> Piece:
        """That many steps more."""
        shape = (steps, len(self._ops))
        ms = np.array([op.ms for op in self._ops])
        fused = np.array([op.gap_ms is None for op in self._ops])
        durations = self._ticks(ms, shape)
        gaps = self._ticks(np.array([op.gap_ms or 0.0 for op in self._ops]), shape)
        durations[:, fused] = 0
        gaps[:, fused] = 0
        ends = self._now + np.cumsum((durations + gaps).ravel()).reshape(shape)
        self._now = int(ends[-1, -1])
        second = np.flatnonzero(fused)
        durations[:, second] = durations[:, second - 1]
        call_durations, call_ends = self._sub_times(durations, ends)
        text = self._render(durations, ends, call_durations, call_ends)
        lines = self._lines + 1 + np.arange(durations.size)
        self._lines += durations.size
        return Piece(
            text,
            {
                "ops": self._op_rows(lines, durations, ends),
                "comms": self._call_rows(lines.reshape(shape), call_durations, call_ends),
            },
        )

    def _ticks(self, ms: Integers, shape: tuple[int, int]) -> Integers:
        """Times around typical ones: a few percent of spread and now and then a long one."""
        spread = self._random.lognormal(0.0, 0.08, shape)
        spread[self._random.random(shape) < 0.01] *= 1.7
        return np.maximum(np.rint(ms * spread * _TICKS_PER_MS), 1).astype(np.int64)

    def _sub_times(self, durations: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """Durations and ends of the sub-operations, one after the other within their operation."""
        steps, calls = len(durations), len(self._calls)
        own = self._ticks(np.array([call.ms for call in self._calls]), (steps, calls))
        counts = np.bincount(self._owner, minlength=len(self._ops))[self._owner]
        place = np.concatenate([np.arange(len(op.calls)) for op in self._ops])
        share = (place + self._random.random((steps, calls))) / counts
        start = (ends - durations)[:, self._owner]
        return own, start + (durations[:, self._owner] * share).astype(np.int64)

    def _render(self, durations: Integers, ends: Integers, *calls: Integers) -> bytes:
        """Fills the template, whose holes are those of an operation, then of its calls."""
        op_count = len(self._ops)
        entries = np.argsort(
            np.concatenate([np.arange(op_count), self._owner + 0.5]), kind="stable"
        )
        both = np.stack(
            [
                np.concatenate([durations, calls[0]], axis=1)[:, entries],
                np.concatenate([ends, calls[1]], axis=1)[:, entries],
            ],
            axis=2,
        )
        values = (both.reshape(len(durations), -1) / _TICKS_PER_MS).tolist()
        return "".join([self._template % tuple(row) for row in values]).encode()

    def _op_rows(self, lines: Integers, durations: Integers, ends: Integers) -> pa.Table:
        steps, ops = len(durations), self._ops
        return pa.table(
            {
                "line": lines,
                "rank": np.zeros(len(lines), np.int32),
                "op": repeated([op.name for op in ops], steps),
                "stage_id": np.zeros(len(lines), np.int32),
                "phase": repeated([op.phase for op in ops], steps),
                "duration_ns": durations.ravel() * _NS_PER_TICK,
                "end_ns": ends.ravel() * _NS_PER_TICK,
                "group": repeated([op.group for op in ops], steps),
                "shape": repeated([op.shape for op in ops], steps, pa.list_(pa.int64())),
                "dtype": repeated(["float32" if op.shape else None for op in ops], steps),
            }
        )

    def _call_rows(self, lines: Integers, durations: Integers, ends: Integers) -> pa.Table:
        steps, calls = len(durations), self._calls
        place = np.concatenate([np.arange(len(op.calls)) for op in self._ops])
        return pa.table(
            {
                "line": lines[:, self._owner].ravel(),
                "sub_seq": np.tile(place, steps),
                "caller": repeated([call.caller for call in calls], steps),
                "func": repeated([call.func for call in calls], steps),
                "tensor": repeated([call.tensor for call in calls], steps),
                "group": repeated(["tp"] * len(calls), steps),
                "duration_ns": durations.ravel() * _NS_PER_TICK,
                "end_ns": ends.ravel() * _NS_PER_TICK,
                "shape": repeated([call.shape for call in calls], steps, pa.list_(pa.int64())),
                "dtype": repeated([call.dtype for call in calls], steps),
            }
        )


def _pieces(size_bytes: int, random: np.random.Generator) -> Iterator[Piece]:
    source = _Steps(random)
    piece = source.draw(1)
    step_bytes, left = len(piece.text), size_bytes - len(piece.text)
    yield piece
    while left > 0:
        piece = source.draw(min(_STEPS_AT_ONCE, -(-left // step_bytes)))
        left -= len(piece.text)
        yield piece


INPUT = BenchInput(
    file_name="wd8_tp2_pp4_numl40_bs2_GPT2BPETokenizer_rank0_20240923205004.txt",
    pieces=_pieces,
    relations=(
        Relation(
            "ops",
            key=("line",),
            columns={
                "line": "BIGINT",
                "rank": "INTEGER",
                "op": "VARCHAR",
                "stage_id": "INTEGER",
                "phase": "VARCHAR",
                "duration_ns": "BIGINT",
                "end_ns": "BIGINT",
                "group": "VARCHAR",
                "shape": "BIGINT[]",
                "dtype": "VARCHAR",
            },
            ours="""
                SELECT *, stage AS stage_id,
                    if(group_kind = 'embedding', 'ep', group_kind) AS "group"
                FROM ops
            """,
        ),
        Relation(
            "comms",
            key=("line", "sub_seq"),
            columns={
                "line": "BIGINT",
                "sub_seq": "INTEGER",
                "caller": "VARCHAR",
                "func": "VARCHAR",
                "tensor": "VARCHAR",
                "group": "VARCHAR",
                "duration_ns": "BIGINT",
                "end_ns": "BIGINT",
                "shape": "BIGINT[]",
                "dtype": "VARCHAR",
            },
            ours="""
                SELECT * REPLACE (sub_seq - 1 AS sub_seq), raw_func AS func, raw_group AS "group"
                FROM comms
                WHERE sub_seq IS NOT NULL
            """,
        ),
    ),
)
