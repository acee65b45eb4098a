"""A plan of a dense model with sequence parallelism, of as many micro-batches as make the size.

The columns are those of generated plans, separated by single tabs. A plan has one time per kind of
layer, which all its micro-batches repeat, some 16 in real ones. Here the times are drawn anew after
every second, and the text compresses as public plans do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tests.bench.inputs import BenchInput, Integers, Piece, Relation, repeated

_LAYERS = 16  # of this stage
_SIZE = 134_217_728
_UPDATE_NS = 100
_BLOCKS_AT_ONCE = 1024
_SAME_BLOCKS = 2  # have the same times
_PASSES = ("forward", "input_grad", "weight_grad")
_HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 16 vpp: 16 ga: {blocks}"
    " all_gpus: 1024 checkpoints: 0 checkpoint_initiates: 0 pp_comm: {size}\n{rows}\n"
)
_OPENING = (
    "grad_gather\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t2807758848\t100\n"
    "grad_param_comm\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tREDUCESCATTER\t5615517696\t100\n"
)

# Name, then collective, bytes and typical ns of each pass.
_Layer = tuple[str, tuple[tuple[str, int, int], ...]]
_EMBEDDING: _Layer = (
    "embedding_layer",
    (("ALLREDUCE", _SIZE, 2_456_804), ("NONE", 0, 1), ("NONE", 0, 1_879_040)),
)


def _pair(name: str, forward_ns: int, backward_ns: int) -> tuple[_Layer, _Layer]:
    weights = ("NONE", 0, backward_ns)
    return (
        (
            f"{name}_column",
            (("ALLGATHER", _SIZE, forward_ns), ("REDUCESCATTER", 0, backward_ns), weights),
        ),
        (
            f"{name}_row",
            (("REDUCESCATTER", _SIZE, forward_ns), ("ALLGATHER", _SIZE, backward_ns), weights),
        ),
    )


_KINDS: list[_Layer] = [
    _EMBEDDING,
    *_pair("attention", 5_729_721, 2_864_860),
    *_pair("mlp", 5_278_888, 5_278_888),
]
_BLOCK: list[_Layer] = [_EMBEDDING, *_KINDS[1:] * _LAYERS]


def _draw(blocks: int, first_line: int, random: np.random.Generator) -> Piece:
    """That many micro-batches."""
    passes = [one for _, found in _BLOCK for one in found]
    typical = np.array([[ns for _, _, ns in found] for _, found in _KINDS])
    spread = random.lognormal(0.0, 0.03, (-(-blocks // _SAME_BLOCKS), *typical.shape))
    drawn = np.where(typical > 1, np.rint(typical * spread), 1).astype(np.int64)
    kinds = [_KINDS.index(layer) for layer in _BLOCK]
    times = np.repeat(drawn[:, kinds], _SAME_BLOCKS, axis=0)[:blocks].reshape(blocks, -1)
    template = "".join(
        f"{name}\t-1\t" + "\t".join(f"%d\t{word}\t{size}" for word, size, _ in found) + "\t100\n"
        for name, found in _BLOCK
    )
    text = "".join([template % tuple(row) for row in times.tolist()])
    lines = first_line + np.arange(blocks * len(_BLOCK))
    names = [name for name, found in _BLOCK for _ in found]
    return Piece(
        text.encode(),
        {
            "passes": _rows(
                np.repeat(lines, len(_PASSES)),
                times.ravel(),
                repeated(names, blocks),
                repeated([word for word, _, _ in passes], blocks),
                np.tile([size for _, size, _ in passes], blocks),
            )
        },
    )


def _rows(
    lines: Integers, times: Integers, layers: pa.Array, words: pa.Array, sizes: Integers
) -> pa.Table:
    return pa.table(
        {
            "line": lines,
            "layer": layers,
            "pass": repeated(_PASSES, len(lines) // len(_PASSES)),
            "compute_ns": times,
            "raw_comm": words,
            "raw_bytes": sizes,
            "update_ns": np.full(len(lines), _UPDATE_NS),
        }
    )


def _opening(blocks: int) -> Piece:
    found = [line.split("\t") for line in _OPENING.splitlines()]
    rows = len(found) + blocks * len(_BLOCK)
    columns = [[row[at + offset] for row in found for at in (2, 5, 8)] for offset in range(3)]
    return Piece(
        f"{_HEADER.format(blocks=blocks, size=_SIZE, rows=rows)}{_OPENING}".encode(),
        {
            "passes": _rows(
                np.repeat(np.arange(3, 3 + len(found)), len(_PASSES)),
                np.array(columns[0], np.int64),
                pa.array([row[0] for row in found for _ in _PASSES]),
                pa.array(columns[1]),
                np.array(columns[2], np.int64),
            )
        },
    )


def _pieces(size_bytes: int, random: np.random.Generator) -> Iterator[Piece]:
    # The number of rows stands at the top: it follows from the size of a block like the others.
    typical = _draw(8, 0, np.random.default_rng(0))
    blocks = -(-size_bytes * 8 // len(typical.text))
    opening = _opening(blocks)
    yield opening
    line = opening.text.count(b"\n") + 1
    for first in range(0, blocks, _BLOCKS_AT_ONCE):
        count = min(_BLOCKS_AT_ONCE, blocks - first)
        yield _draw(count, line, random)
        line += count * len(_BLOCK)


INPUT = BenchInput(
    file_name="gpt_megatron_tp8_pp16_mbs1_1024gpus.txt",
    pieces=_pieces,
    relations=(
        Relation(
            "passes",
            key=("line", "pass"),
            columns={
                "line": "BIGINT",
                "layer": "VARCHAR",
                "pass": "VARCHAR",
                "compute_ns": "BIGINT",
                "raw_comm": "VARCHAR",
                "raw_bytes": "BIGINT",
                "update_ns": "BIGINT",
            },
            ours="SELECT * FROM workload_passes",
        ),
    ),
)
