"""Write a training log as OptimusPrime's processes print it, all to one stream."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from tracelake.synth.spec import Spec
from tracelake.synth.training_log import Batch, LayerTime, Log

_STEPS_PER_EPOCH = 323
_LAUNCHER = "site-packages/torch/distributed/run.py:793]"
_RULE = f" {'-' * 60}"


def file_name(spec: Spec, stamp: datetime) -> str:
    """Return the base name; a log is that of one replica."""
    batch = spec.micro_batch_size * spec.micro_batches
    return (
        f"{stamp:%Y%m%d_%H%M%S}_TP{spec.tp}_DP1_PP{spec.pp}_MBS{spec.micro_batch_size}"
        f"_GBS{batch}_log.txt"
    )


def steps_written(spec: Spec, repeats: int) -> int:
    """Return steps in the file: the first, which is warm-up, and all others `repeats` times."""
    return 1 + (spec.log_steps - 1) * repeats


def chunks(log: Log, stamp: datetime, repeats: int) -> Iterator[bytes]:
    """Yield the file in pieces of a step each."""
    spec, total = log.spec, steps_written(log.spec, repeats)
    cycle = spec.log_steps - 1
    templates = {step: step_template(log, step) for step in range(1, spec.log_steps + 1)}
    # Only the first record adds up two batches: a repeated step 2 has its own time.
    later = {**templates, 2: step_template(log, 2, log.batches[1])}
    epoch = max(_STEPS_PER_EPOCH, total)
    yield _text(_preamble(spec, stamp, epoch))
    for number in range(1, total + 1):
        template = (
            templates[number] if number <= spec.log_steps else later[2 + (number - 2) % cycle]
        )
        yield template % {b"step": number, b"batch": number - 1, b"epoch": epoch}
    records = _text(_records(log.record(spec.log_steps)))
    yield records % {b"batch": total, b"epoch": epoch}
    yield _text(_closing(log, stamp))


def step_template(log: Log, step: int, record: Batch | None = None) -> bytes:
    """Return blocks of a step, the last stage first, then the record of the batch before.

    Args:
        record: Shown in place of the batch's own record.
    """
    spec = log.spec
    blocks = [_block(log, step, stage) for stage in range(spec.pp)]
    records = _records(record or log.record(step - 1)) if step > 1 else []
    if step == spec.merge_block and log.merged_stages:
        left, right = log.merged_stages
        blocks[right], blocks[left] = _merge(blocks[left], blocks[right]), []
    lines = [*blocks[-1], *records]
    for block in reversed(blocks[:-1]):
        lines += block
    return _text(lines)


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _block(log: Log, step: int, stage: int) -> list[str]:
    header = (
        f"[rank:{log.leader(stage)} stage:{stage}] transformer-block(module) forward time"
        " (no send/recv) - step %(step)d"
    )
    return [header, *map(_layer, log.blocks[step][stage])]


def _layer(time: LayerTime) -> str:
    total = time.total_us / 1e3
    return (
        f"  layer[{time.layer}]: total={total:.3f}ms, ops={time.ops}"
        f", avg/op={total / time.ops:.3f}ms"
    )


def _merge(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Interleave two processes that print at once: both texts first, then both ends of line."""
    shared = min(len(left), len(right))
    lines = [text for pair in zip(left, right, strict=False) for text in ("".join(pair), "")]
    return [*lines, *left[shared:], *right[shared:]]


def _records(batch: Batch) -> list[str]:
    return [
        f"| epoch   1 | %(batch)5d/%(epoch)5d batches | lr 0.00 | ms/batch {time / 1e3:5.2f}"
        f" | loss {batch.loss:5.2f} | ppl {math.exp(batch.loss):8.2f}"
        for time in batch.times_us
    ]


def _preamble(spec: Spec, stamp: datetime, batches: int) -> Iterator[str]:
    world = spec.tp * spec.pp
    for text in ("", "*" * 41, "OMP_NUM_THREADS is set to 1 for each process", "*" * 41):
        yield f"W{stamp:%m%d %H:%M:%S}.284000 96784 {_LAUNCHER} {text}"
    yield "[rank:0] torch version 2.3.1 or higher --> OK"
    yield "[rank:0] transformers version 4.46.2 or higher --> OK"
    yield f"> Total parameters in model: {spec.layers * 12 * spec.hidden**2:,}"
    for key, value in (
        ("World size", world),
        ("IR", "IR_Anal.SEQUENTIAL"),
        ("GAS", spec.micro_batches),
        ("GBS", spec.micro_batches * spec.micro_batch_size),
        ("MBS", spec.micro_batch_size),
        ("TP", spec.tp),
        ("DP", 1),
        ("PP", spec.pp),
    ):
        yield f"> {key}: {value}"
    yield f"Available GPUs per server: {world}"
    yield from ["GPU mode is used."] * world
    yield f"> World Size: {world}"
    yield f"> Pipeline Parallel Size: {spec.pp}"
    if spec.tp > 1:
        yield f"> Tensor Parallel Size: {spec.tp}"
    yield ">> ir_analyze: IR_Anal.SEQUENTIAL"
    yield f" {'-' * 34}"
    stages = {s: list(range(s * spec.tp, (s + 1) * spec.tp)) for s in range(spec.pp)}
    yield f"stage2rank = {stages}"
    yield f" {'-' * 34}"
    for rank in range(world):
        slot, first = rank % spec.tp, rank - rank % spec.tp
        meshes = {
            "pp": list(range(slot, world, spec.tp)),
            "tp": list(range(first, first + spec.tp)),
            "dp": [rank],
        }
        groups = ", ".join(
            f"{name} group:DeviceMesh('cuda', {ranks}, mesh_dim_names=('{name}',))"
            for name, ranks in meshes.items()
        )
        yield f"> [rank:{rank}] {groups}"
        yield f">>> Using GPU ... cuda:{rank}"
        yield ">> model class name: LlamaForCausalLM"
        yield f">> split method: {'simple' if spec.tp == 1 else 'llama-tp-split'}"
        yield f"SEQUENTIAL mode >> [rank:{rank}, local_world_size:{world}]"
    yield _RULE
    yield ">> ------------------ FX graph --------------------------------"
    previous = "input_ids"
    yield f"n.op:placeholder, n.name:{previous}, n.target:{previous}, n.args:()"
    for stage in range(spec.pp):
        name = f"submod_{stage}"
        yield f"n.op:call_module, n.name:{name}, n.target:{name}, n.args:({previous},)"
        previous = name
    yield _RULE
    yield f"nbatches={batches}"


def _closing(log: Log, stamp: datetime) -> Iterator[str]:
    world = log.spec.tp * log.spec.pp
    seconds = sum(batch.times_us[0] for batch in log.batches) / 1e6
    ended = stamp + timedelta(seconds=round(seconds))
    for rank in reversed(range(world)):
        if rank == 0:
            yield f"Time elapsed: {seconds:.3f} sec "
        yield f"[rank:{rank}, run completed ..."
    for rank in range(world):
        yield (
            f"[rank{rank}]:[W{ended:%m%d %H:%M:%S}.639117982 ProcessGroupNCCL.cpp:1250]"
            " Warning: process group has not been destroyed"
        )
