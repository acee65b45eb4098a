"""Define the operations of a rank: compute times, and the communication between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracelake.synth.spec import Spec, ticks

VOCABULARY = 50_432
ACTIVATION_DTYPE = "float16"
WIDTHS = {"int64": 8, "float32": 4, "float16": 2, "bool": 1}
_NORMALISED = {"allreduce": "all_reduce", "allgather": "all_gather"}
_LATENCY_TICKS = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A communication inside an operation, or an operation that is one.

    Attributes:
        caller: Function that traced it.
        word: The collective as the trace spells it.
        group: Kind of group as `Spec.group` takes it.
        shape: Shape of the rank's input tensor.
        hidden: Compute that runs at the same time, in ticks: the call lasts at least as long. None
            for a call that blocks.
        tensor: Name of the tensor; None if the trace omits it.
    """

    caller: str
    word: str
    group: str
    shape: tuple[int, ...]
    dtype: str
    tensor: str | None = None
    hidden: int | None = None

    @property
    def collective(self) -> str:
        """Normalised name."""
        return _NORMALISED.get(self.word, self.word)

    def size_bytes(self, members: int) -> int:
        """Return the size for bandwidth: an all_gather counts its whole output."""
        tensor = math.prod(self.shape) * WIDTHS[self.dtype]
        return tensor * members if self.word == "allgather" else tensor

    def bus_factor(self, members: int) -> float:
        """Return bus over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
        match self.word:
            case "allreduce":
                return 2 * (members - 1) / members
            case "allgather" | "all_to_all":
                return (members - 1) / members
        return 1.0

    def cost(self, spec: Spec, members: int) -> int:
        """Return ticks from the arrival of the last member to the end."""
        if spec.busbw_gbps is None:
            return 0
        seconds = self.size_bytes(members) * self.bus_factor(members) / (spec.busbw_gbps * 1e9)
        free = _LATENCY_TICKS + ticks(seconds * 1e3)
        slowed = f"{self.collective}/{self.group}" == spec.slow_collective
        return round(free * spec.slow_collective_factor) if slowed else free


Part = int | Call


def halves(amount: int) -> tuple[int, int]:
    """Return two whole parts that add up."""
    return amount // 2, amount - amount // 2


def get_batch(spec: Spec, *, first: bool, last: bool) -> list[Part]:
    """Return host work between the broadcasts of what the stage needs."""
    tokens = (spec.micro_batch_size, spec.sequence)
    mask = (spec.micro_batch_size, 1, spec.sequence, spec.sequence)
    tensors = [
        *([("tokens", tokens, "int64")] if first else []),
        *([("labels", tokens, "int64"), ("loss_mask", tokens, "float32")] if last else []),
        ("attention_mask", mask, "bool"),
        *([("position_ids", tokens, "int64")] if first else []),
    ]
    if spec.tp == 1:
        return [ticks(spec.overhead_ms)]
    share, rest = divmod(ticks(spec.overhead_ms), len(tensors) + 1)
    parts: list[Part] = [share + rest]
    for name, shape, dtype in tensors:
        parts += [Call("_broadcast", "broadcast", "tp", shape, dtype, name), share]
    return parts


def loss_func(spec: Spec) -> list[Part]:
    """Return host work, then the loss averaged over replicas."""
    return [
        ticks(spec.overhead_ms),
        Call("allreduce", "allreduce", "dp", (1,), "float32", "loss_func"),
    ]


def forward(spec: Spec, layers: int, *, first: bool, last: bool) -> list[Part]:
    """Return the forward pass of these layers: attention and MLP, with communication."""
    attention, mlp = halves(ticks(spec.forward_ms))
    parts: list[Part] = []
    if first and spec.tp > 1:
        tokens = (spec.micro_batch_size, spec.sequence, spec.hidden)
        parts.append(Call("_reduce", "allreduce", "tp", tokens, ACTIVATION_DTYPE, "embedding_fwd"))
    for _ in range(layers):
        parts += [attention, *_reduced(spec)]
        if spec.experts:
            parts += [_gather_counts(spec), _exchange_tokens(spec), mlp, _exchange_tokens(spec)]
        else:
            parts += [mlp, *_reduced(spec)]
    if last and spec.tp > 1:
        shape = (spec.sequence, spec.micro_batch_size)
        parts += [
            Call("_reduce", "allreduce", "tp", shape, "float32", f"crossEntropy_fwd_{part}")
            for part in (1, 2, 3)
        ]
    return parts


def backward(spec: Spec, layers: int, *, last: bool) -> list[Part]:
    """Return the backward pass; weight gradients overlap the all-reduce of input gradients."""
    mlp, attention = halves(ticks(spec.backward_ms))
    parts: list[Part] = []
    if last and spec.tp > 1:
        shape = (spec.sequence, spec.micro_batch_size, spec.hidden)
        name = "embedding_bwd_async"
        parts.append(Call(name, "allreduce", "tp", shape, ACTIVATION_DTYPE, name, hidden=0))
    for _ in range(layers):
        if spec.experts:
            parts += [_exchange_tokens(spec), mlp, _exchange_tokens(spec)]
        else:
            parts += _gradients(spec, mlp)
        parts += _gradients(spec, attention)
    return parts


def message(spec: Spec, op: str) -> Call:
    """Return the activations, or their gradients, that go from stage to stage."""
    shape = (spec.sequence, spec.micro_batch_size, spec.hidden)
    return Call(op, "send_recv", "pp", shape, ACTIVATION_DTYPE)


def finalizers(spec: Spec, stage: int) -> list[Call]:
    """Return gradient synchronisation at the end of a step, in order; named by their `caller`."""
    at_end = stage in {0, spec.pp - 1}
    embedding = (VOCABULARY // spec.tp, spec.hidden)
    layers = spec.layers // spec.pp
    count = layers * (4 if spec.experts else 12) * spec.hidden**2 // spec.tp
    count += math.prod(embedding) if at_end else 0
    calls = [Call("dp_allreduce", "allreduce", "dp", (count,), "float32")]
    if spec.experts:
        count = layers * 8 * spec.hidden**2 * spec.experts // spec.ep
        calls.append(Call("exp_dp_allreduce", "allreduce", "expert_dp", (count,), "float32"))
    if at_end and spec.pp > 1:
        calls.append(Call("ep_allreduce", "allreduce", "embedding", embedding, "float32"))
    return calls


def _reduced(spec: Spec) -> list[Part]:
    if spec.tp == 1:
        return []
    shape = (spec.sequence * spec.micro_batch_size, spec.hidden)
    return [Call("allreduce", "allreduce", "tp", shape, ACTIVATION_DTYPE, "linear_fwd")]


def _gradients(spec: Spec, amount: int) -> list[Part]:
    if spec.tp == 1:
        return [amount]
    inputs, weights = halves(amount)
    shape = (spec.sequence * spec.micro_batch_size, spec.hidden)
    name, tensor = "normlinear_bwd_async", "normlinear_bwd"
    return [inputs, Call(name, "allreduce", "tp", shape, ACTIVATION_DTYPE, tensor, weights)]


def _gather_counts(spec: Spec) -> Call:
    name = "gather_along_first_dim_expert_parallel"
    return Call(f"_{name}", "allgather", "expert", (spec.experts,), "int64", name)


def _exchange_tokens(spec: Spec) -> Call:
    shape = (spec.sequence * spec.micro_batch_size, spec.hidden)
    return Call("_profiled_all_to_all_single", "all_to_all", "expert", shape, ACTIVATION_DTYPE)
