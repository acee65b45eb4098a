"""A training log of 4 stages and 2 tensor-parallel ranks: layer times of every step, and progress.

A block per stage and step, printed by its first rank, and a progress record by each rank of the
last stage. Every time is drawn anew. Real logs have such blocks for their first 20 steps only, and
now and then two ranks on one line; here all steps have blocks and none is torn, which spares the
peers what they could not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.bench.inputs import BenchInput, Integers, Piece, Relation, repeated

_NS_PER_US = 1_000
_NS_PER_CS = 10_000  # a hundredth of a ms, as progress records print it
_STAGES = 4
_TP = 2
_LAYERS_PER_STAGE = 4
_STEPS_PER_EPOCH = 99_999
_STEPS_AT_ONCE = 2048
_STEP_MS = 1300.0
_PREAMBLE = """\
[rank:0] torch version 2.3.1 or higher --> OK
> Total parameters in model: 1,235,814,400
> World size: 8
> GAS: 16
> GBS: 32
> MBS: 2
> TP: 2
> DP: 1
> PP: 4
Available GPUs per server: 8
stage2rank = {0: [0, 1], 1: [2, 3], 2: [4, 5], 3: [6, 7]}
>> model class name: LlamaForCausalLM
>> split method: llama-tp-split
"""


@dataclass(frozen=True)
class _Layer:
    """A row of a block and its typical time."""

    stage: int
    name: str
    ops: int
    ms: float


def _layers() -> list[_Layer]:
    """The rows of a step in the order of its blocks, the last stage first."""
    rows = []
    for stage in reversed(range(_STAGES)):
        if stage == 0:
            rows.append(_Layer(0, "embed", 16, 0.5))
        first = stage * _LAYERS_PER_STAGE
        rows += [_Layer(stage, str(first + k), 128, 26.0) for k in range(_LAYERS_PER_STAGE)]
        if stage == _STAGES - 1:
            rows.append(_Layer(stage, "lm_head", 16, 85.0))
    return rows


def _template(layers: list[_Layer], records: int) -> tuple[str, Integers]:
    """Text of a step with holes, and of every line what it is: 0 header, 1 layer, 2 record."""
    lines, kinds = [], []
    for row, layer in enumerate(layers):
        if row == 0 or layers[row - 1].stage != layer.stage:
            lines.append(
                f"[rank:{layer.stage * _TP} stage:{layer.stage}] transformer-block(module)"
                " forward time (no send/recv) - step %d"
            )
            kinds.append(0)
        lines.append(f"  layer[{layer.name}]: total=%.3fms, ops={layer.ops}, avg/op=%.3fms")
        kinds.append(1)
    for _ in range(records):
        lines.append(
            f"| epoch   1 | %5d/{_STEPS_PER_EPOCH:5} batches | lr 0.00 | ms/batch %5.2f"
            " | loss %5.2f | ppl %8.2f"
        )
        kinds.append(2)
    return "".join(f"{line}\n" for line in lines), np.array(kinds)


class _Log:
    """Draws steps: the text, and the rows that it says."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._layers = _layers()
        self._lines = 0
        self._steps = 0

    def preamble(self) -> Piece:
        """What stands before the first step."""
        self._lines = _PREAMBLE.count("\n")
        return Piece(_PREAMBLE.encode(), {})

    def draw(self, steps: int) -> Piece:
        """That many steps more, each with the progress of the one before where there is one."""
        layers, records = self._layers, _TP if self._steps else 0
        numbers = self._steps + 1 + np.arange(steps)
        self._steps += steps
        template, kinds = _template(layers, records)
        lines = self._lines + 1 + np.arange(steps * len(kinds)).reshape(steps, -1)
        self._lines += lines.size
        typical_us = np.array([layer.ms for layer in layers]) * 1e3
        total_us = self._around(typical_us, (steps, len(layers)))
        average_us = np.rint(total_us / [layer.ops for layer in layers]).astype(np.int64)
        step_cs = self._around(np.array([_STEP_MS * 100]), (steps, records))
        loss_cs = self._around(200 + 1000 / np.sqrt(numbers), (steps,))
        ppl_cs = np.rint(np.exp(loss_cs / 100) * 100)
        columns: list[npt.NDArray[Any]] = []
        for row, layer in enumerate(layers):
            if row == 0 or layers[row - 1].stage != layer.stage:
                columns.append(numbers)
            columns += [total_us[:, row] / 1e3, average_us[:, row] / 1e3]
        for copy in range(records):
            columns += [numbers - 1, step_cs[:, copy] / 100, loss_cs / 100, ppl_cs / 100]
        text = "".join([template % tuple(row) for row in np.stack(columns, axis=1).tolist()])
        return Piece(
            text.encode(),
            {
                "layers": self._layer_rows(lines[:, kinds == 1], numbers, total_us, average_us),
                "steps": _step_rows(lines[:, kinds == 2], numbers - 1, step_cs, loss_cs, ppl_cs),
            },
        )

    def _around(self, typical: npt.NDArray[np.float64], shape: tuple[int, ...]) -> Integers:
        spread = self._random.lognormal(0.0, 0.12, shape)
        spread[self._random.random(shape) < 0.01] *= 2.0
        return np.rint(typical * spread).astype(np.int64)

    def _layer_rows(
        self, lines: Integers, numbers: Integers, total_us: Integers, average_us: Integers
    ) -> pa.Table:
        steps, layers = len(numbers), self._layers
        stages = np.array([layer.stage for layer in layers])
        return pa.table(
            {
                "line": lines.ravel(),
                "rank": np.tile(stages * _TP, steps),
                "stage": np.tile(stages, steps),
                "step": np.repeat(numbers, len(layers)),
                "layer": repeated([layer.name for layer in layers], steps),
                "total_ns": total_us.ravel() * _NS_PER_US,
                "ops": np.tile([layer.ops for layer in layers], steps),
                "avg_ns": average_us.ravel() * _NS_PER_US,
            }
        )


def _step_rows(
    lines: Integers,
    numbers: Integers,
    step_cs: Integers,
    loss_cs: Integers,
    ppl_cs: npt.NDArray[np.float64],
) -> pa.Table:
    copies, rows = step_cs.shape[1], step_cs.size
    return pa.table(
        {
            "line": lines.ravel(),
            "epoch": np.ones(rows, np.int64),
            "step": np.repeat(numbers, copies),
            "steps_per_epoch": np.full(rows, _STEPS_PER_EPOCH),
            "lr": np.zeros(rows),
            "step_time_ns": step_cs.ravel() * _NS_PER_CS,
            "loss": np.repeat(loss_cs / 100, copies),
            "ppl": np.repeat(ppl_cs / 100, copies),
        }
    )


def _pieces(size_bytes: int, random: np.random.Generator) -> Iterator[Piece]:
    log = _Log(random)
    yield log.preamble()
    piece = log.draw(1)
    step_bytes, left = len(piece.text), size_bytes - len(_PREAMBLE) - len(piece.text)
    yield piece
    while left > 0:
        piece = log.draw(min(_STEPS_AT_ONCE, -(-left // step_bytes)))
        left -= len(piece.text)
        yield piece


INPUT = BenchInput(
    file_name="20251224_111323_TP2_DP1_PP4_MBS2_GBS32_log.txt",
    pieces=_pieces,
    relations=(
        Relation(
            "layers",
            key=("line",),
            columns={
                "line": "BIGINT",
                "rank": "INTEGER",
                "stage": "INTEGER",
                "step": "INTEGER",
                "layer": "VARCHAR",
                "total_ns": "BIGINT",
                "ops": "BIGINT",
                "avg_ns": "BIGINT",
            },
            ours="SELECT * FROM layer_times",
        ),
        Relation(
            "steps",
            key=("line",),
            columns={
                "line": "BIGINT",
                "epoch": "INTEGER",
                "step": "INTEGER",
                "steps_per_epoch": "INTEGER",
                "lr": "DOUBLE",
                "step_time_ns": "BIGINT",
                "loss": "DOUBLE",
                "ppl": "DOUBLE",
            },
            ours="SELECT * FROM train_steps",
        ),
    ),
)
