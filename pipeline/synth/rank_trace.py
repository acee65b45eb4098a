"""Write the operations of ranks as Megatron's tracer prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracelake.synth.schedule import Op, Span
from tracelake.synth.spec import TICKS_PER_MS, Spec
from tracelake.synth.work import Call

TOKENIZER = "GPT2BPETokenizer"

_GROUPS = {"expert": "exp", "expert_dp": "exp_dp", "embedding": "ep"}
_DESCRIPTIONS = {
    "loss_func": "loss_func, calculate and DP allreduce for the last stage",
    "dp_allreduce": (
        "model_chunk.finish_grad_sync(), All-reduce / reduce-scatter across DP replicas"
    ),
    "exp_dp_allreduce": "Expert DP gradient synchronization (expert parameters)",
    "ep_allreduce": "_allreduce_word_embedding_grads",
}
# Decimals as Python prints round(x, 2).
_DECIMALS = [str(hundredth / 100).removeprefix("0") for hundredth in range(TICKS_PER_MS)]


@dataclass(frozen=True)
class Template:
    """Text of some lines, with a `%d` for the whole milliseconds of each time stamp."""

    text: bytes
    stamps_ms: npt.NDArray[np.int64]

    def render(self, shift_ms: int) -> bytes:
        """Return the lines, shifted by this time."""
        return self.text % tuple((self.stamps_ms + shift_ms).tolist())


def file_name(spec: Spec, rank: int, stamp: str) -> str:
    """Return the base name of a rank's file."""
    experts = f"_exp{spec.ep}_expNum{spec.experts}" if spec.experts else ""
    return (
        f"wd{spec.world_size}_tp{spec.tp}_pp{spec.pp}{experts}_numl{spec.layers}"
        f"_bs{spec.micro_batch_size}_{TOKENIZER}_rank{rank}_{stamp}.txt"
    )


def template(
    spec: Spec, ops: Iterable[Op], clock: Callable[[int], int], *, simulated: bool
) -> Template:
    """Return lines of one rank.

    Args:
        clock: Time of the rank's clock for a time after the job's start, both in ticks.
        simulated: Executed alone: without phases, and gradient synchronisation without times.
    """
    lines: list[str] = []
    stamps: list[int] = []
    for op in ops:
        untimed = simulated and op.own is not None
        head = (
            f"rank:{op.rank}:{op.name}(stage_id={spec.stage(op.rank)},batch_id={op.number}"
            f",mg_state={None if simulated else op.phase}"
            f",duration={0 if untimed else decimal(op.end - op.start)}"
            f",description={None if simulated else _DESCRIPTIONS.get(op.name)}"
            f",{_operand(op, simulated=simulated)}"
        )
        end = "0" if untimed else _stamp(clock(op.end))
        calls = ", ".join(repr(_sub_operation(span, clock(span.end))) for span in op.spans)
        lines.append(f"{head},timestamp={end},sub_operations=[{calls}])\n")
        stamps += [] if untimed else [clock(op.end)]
        stamps += [clock(span.end) for span in op.spans]
    whole = np.array(stamps, dtype=np.int64) // TICKS_PER_MS
    return Template("".join(lines).encode(), whole)


def decimal(amount: int) -> str:
    """Return ticks as milliseconds, as Python prints them rounded to two decimals."""
    return f"{amount // TICKS_PER_MS}{_DECIMALS[amount % TICKS_PER_MS]}"


def row_counts(ranks: Sequence[Sequence[Op]]) -> dict[str, int]:
    """Return rows that the lines should give, by table."""
    ops = [op for rank in ranks for op in rank]
    return {
        "ops": len(ops),
        "comms": sum(len(op.spans) + (op.own is not None) for op in ops),
    }


def _operand(op: Op, *, simulated: bool) -> str:
    if op.own is not None:
        return f"group_kind={_group(op.own.call)},{_tensor(op.own.call)}"
    group = "tp" if simulated and op.name == "get_batch" else None
    return f"group_kind={group},input__shape=None,input__dtype=None"


def _sub_operation(span: Span, stamp: int) -> str:
    call = span.call
    name = f",func_name={call.tensor}" if call.tensor else ""
    return (
        f"trace_src_func={call.caller},duration={decimal(span.end - span.start)}"
        f",timestamp={_stamp(stamp)},{_tensor(call)}{name}"
        f",group={_group(call)},comm_func={call.word}"
    )


def _stamp(at: int) -> str:
    return f"%d{_DECIMALS[at % TICKS_PER_MS]}"


def _tensor(call: Call) -> str:
    return f"input__shape={list(call.shape)},input__dtype=torch.{call.dtype}"


def _group(call: Call) -> str:
    return _GROUPS.get(call.group, call.group)
