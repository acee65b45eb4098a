"""Write workload plans as AICB does: a row per layer, three passes of compute and traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from tracelake.synth.spec import Spec
from tracelake.synth.work import VOCABULARY

_UNMEASURED_NS = 1  # value in an unprofiled plan
_MEASURABLE_NS = 1_000
_TOP_K = 2
_PLAIN_GROUPS = {"forward": "tp", "input_grad": "tp", "weight_grad": "dp"}
_COLLECTIVES = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pass:
    """Compute of a pass and the communication that follows it, as written."""

    compute_ns: int = _UNMEASURED_NS
    word: str = "NONE"
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A row of the plan."""

    name: str
    forward: Pass = Pass()
    input_grad: Pass = Pass()
    weight_grad: Pass = Pass()

    @property
    def passes(self) -> tuple[Pass, Pass, Pass]:
        """In the order of the columns."""
        return self.forward, self.input_grad, self.weight_grad

    @property
    def line(self) -> str:
        """Twelve fields separated by tabs."""
        fields: list[object] = [self.name, -1]
        for one in self.passes:
            fields += [one.compute_ns, one.word, one.size_bytes]
        return "\t".join(map(str, [*fields, 100]))


@dataclass(frozen=True)
class Plan:
    """Rows of a plan: `block` is one micro-batch and is repeated `repeats` times."""

    spec: Spec
    repeats: int
    opening: tuple[LayerRow, ...]
    block: tuple[LayerRow, ...]
    closing: tuple[LayerRow, ...]
    experts: bool

    @property
    def name(self) -> str:
        """Base name of the file."""
        kind = "moe" if self.experts else "gpt"
        spec = self.spec
        return (
            f"{kind}_megatron_tp{spec.tp}_pp{spec.pp}_mbs{spec.micro_batch_size}"
            f"_{spec.world_size}gpus.txt"
        )

    @property
    def rows(self) -> int:
        """Rows of layers; each has three passes."""
        return len(self.opening) + len(self.block) * self.repeats + len(self.closing)

    def chunks(self) -> Iterator[bytes]:
        """Yield the file in pieces of about a megabyte."""
        spec = self.spec
        activation = 2 * spec.micro_batch_size * spec.sequence * spec.hidden
        header = (
            f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {spec.tp}"
            f" ep: {spec.dp if self.experts else 1} pp: {spec.pp} vpp: {spec.layers // spec.pp}"
            f" ga: {self.repeats} all_gpus: {spec.world_size} checkpoints: 0"
            f" checkpoint_initiates: 0 pp_comm: {activation if spec.pp > 1 else 0}"
        )
        yield f"{header}\n{self.rows}\n".encode() + _text(self.opening)
        block = _text(self.block)
        at_once = max(1, 2**20 // len(block))
        for first in range(0, self.repeats, at_once):
            yield block * min(at_once, self.repeats - first)
        yield _text(self.closing)

    def pass_rows(self) -> list[Row]:
        """Return per pass: compute over profiled rows, and the number of placeholders."""
        nothing = {"compute_ns": 0, "profiled_rows": 0, "placeholder_rows": 0}
        rows: dict[str, Row] = {name: {"pass": name, **nothing} for name in _PLAIN_GROUPS}
        for name, one, count in self._counted():
            profiled = one.compute_ns >= _MEASURABLE_NS
            rows[name]["profiled_rows" if profiled else "placeholder_rows"] += count
            rows[name]["compute_ns"] += count * one.compute_ns if profiled else 0
        return list(rows.values())

    def traffic_rows(self) -> list[Row]:
        """Return per pass, collective and group: calls with a size, and their bytes."""
        totals: dict[tuple[str, str, str], list[int]] = {}
        for name, one, count in self._counted():
            word, _, suffix = one.word.partition("_")
            if word not in _COLLECTIVES:
                continue
            group = {"": _PLAIN_GROUPS[name], "EP": "expert", "DP_EP": "dp_ep"}[suffix]
            total = totals.setdefault((name, _COLLECTIVES[word], group), [0, 0])
            total[0] += count if one.size_bytes else 0
            total[1] += count * one.size_bytes
        return [
            {"pass": name, "collective": word, "group_kind": group, "calls": calls, "bytes": size}
            for (name, word, group), (calls, size) in sorted(totals.items())
        ]

    def _counted(self) -> Iterator[tuple[str, Pass, int]]:
        """Yield passes with their name, and how often they are written."""
        for part, count in ((self.opening, 1), (self.block, self.repeats), (self.closing, 1)):
            for row in part:
                yield from zip(_PLAIN_GROUPS, row.passes, repeat(count))


def make_plan(spec: Spec, *, experts: bool, size_bytes: int) -> Plan:
    """Return plan of the spec's model, with as many micro-batches as the size asks for."""
    opening, block = tuple(_opening(spec, experts=experts)), tuple(_block(spec, experts=experts))
    closing = tuple(_closing(spec))
    repeats = max(spec.micro_batches, -(-size_bytes // len(_text(block))))
    return Plan(spec, repeats, opening, block, closing, experts)


def _opening(spec: Spec, *, experts: bool) -> Iterator[LayerRow]:
    layers = spec.layers // spec.pp
    dense = (layers * (4 if experts else 12) * spec.hidden + VOCABULARY) * spec.hidden // spec.tp
    sparse = layers * 8 * spec.hidden**2 * (spec.experts or spec.dp) // spec.dp if experts else 0
    embedding = 2 * spec.micro_batch_size * spec.sequence * spec.hidden
    yield LayerRow("grad_gather", weight_grad=Pass(word="ALLGATHER", size_bytes=2 * dense))
    yield LayerRow("grad_param_comm", weight_grad=Pass(word="REDUCESCATTER", size_bytes=4 * dense))
    yield LayerRow("grad_param_compute", input_grad=Pass(round(spec.optimizer_ms * 1e6)))
    yield LayerRow("embedding_grads", input_grad=Pass(word="ALLREDUCE", size_bytes=embedding))
    gathered = Pass(word="ALLGATHER_DP_EP", size_bytes=2 * sparse)
    scattered = Pass(word="REDUCESCATTER_DP_EP", size_bytes=4 * sparse)
    yield LayerRow("moe_grad_norm1", weight_grad=gathered)
    yield LayerRow("moe_grad_norm2", weight_grad=scattered)


def _block(spec: Spec, *, experts: bool) -> Iterator[LayerRow]:
    size = 2 * spec.micro_batch_size * spec.sequence * spec.hidden
    forward, backward = round(spec.forward_ms * 1e6) // 4, round(spec.backward_ms * 1e6) // 8
    gathered, scattered = Pass(forward, "ALLGATHER", size), Pass(forward, "REDUCESCATTER", size)
    # The first of each pair hides its reduce-scatter behind the weight gradient.
    hidden = Pass(backward, "REDUCESCATTER", 0)
    shown, weights = Pass(backward, "ALLGATHER", size), Pass(backward)
    yield LayerRow("embedding_layer", Pass(forward, "ALLREDUCE", size), weight_grad=Pass(backward))
    for _ in range(spec.layers // spec.pp):
        yield LayerRow("attention_column", gathered, hidden, weights)
        yield LayerRow("attention_row", scattered, shown, weights)
        if experts:
            yield from _expert_rows(spec, size, 2 * forward, 4 * backward)
        else:
            yield LayerRow("mlp_column", gathered, hidden, weights)
            yield LayerRow("mlp_row", scattered, shown, weights)
    yield LayerRow("final_column", gathered, hidden, weights)


def _expert_rows(spec: Spec, size: int, forward: int, backward: int) -> Iterator[LayerRow]:
    counts = 8 * (spec.experts or spec.dp) * spec.tp
    tokens = _TOP_K * size // spec.tp
    times = (forward, backward)
    for ahead, bytes_, back in (
        ("ALLGATHER", counts, "ALLGATHER"),
        ("ALLTOALL_EP", tokens, "ALLTOALL_EP"),
        ("ALLGATHER", _TOP_K * size, "REDUCESCATTER"),
        ("REDUCESCATTER", _TOP_K * size, "ALLGATHER"),
        ("ALLTOALL_EP", tokens, "ALLTOALL_EP"),
    ):
        yield LayerRow("mlp_moelayer", Pass(times[0], ahead, bytes_), Pass(times[1], back, bytes_))
        times = (_UNMEASURED_NS, _UNMEASURED_NS)


def _closing(spec: Spec) -> Iterator[LayerRow]:
    size = 4 * spec.micro_batch_size * spec.sequence
    for number in (1, 2, 3):
        yield LayerRow(f"cross_entropy{number}", Pass(0, "ALLREDUCE", size), Pass(0), Pass(0))
    for number in (1, 2, 3, 4):
        yield LayerRow(f"optimizer{number}", Pass(0, "ALLREDUCE", 4), Pass(0), Pass(0))


def _text(rows: tuple[LayerRow, ...]) -> bytes:
    return "".join(f"{row.line}\n" for row in rows).encode()
