"""Convert layer rows of a workload plan to Arrow columns: three passes per row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.aicb_workload.repeats import Repeat
from tracelake.formats.aicb_workload.rows import COMM, DEPENDENCY, EXTENSION, LAYER, Records
from tracelake.formats.aicb_workload.words import COLLECTIVES, GROUPS, MEANING, PASSES, Words
from tracelake.kernels import arrow
from tracelake.kernels.arrow import Codes, Mask
from tracelake.kernels.compiled import kernel
from tracelake.kernels.numbers import NULL

_WIDTH = len(PASSES)
_MOVING = MEANING.shape[1]
_SMALL = ["source_id", "row"]
_LARGE = ["line", "compute_ns", "raw_bytes", "update_ns"]


@kernel
def _mark(rows: Records, layers: Mask, comms: Mask) -> bool:
    """Mark the tokens that occur; return whether any row has attributes.

    Args:
        layers: By token.
        comms: By pass and token.
    """
    more = False
    for i in range(len(rows)):
        words = rows[i].words
        layers[words[LAYER]] = True
        for k in range(3):
            comms[k, words[COMM + k]] = True
        more |= words[DEPENDENCY] >= 0 or words[EXTENSION] >= 0
    return more


@kernel
def _spread(
    rows: Records,
    source_id: int,
    layers: Codes,
    comms: Codes,
    meanings: npt.NDArray[np.int32],
    small: npt.NDArray[np.int32],
    large: npt.NDArray[np.int64],
    moves: Mask,
) -> None:
    """Write the three passes of every row, column by column.

    Args:
        rows: n `ROW` records.
        layers: Code of each token that is a layer.
        comms: Code of each token that is a communication word.
        meanings: (2, 3, moving tokens): codes of its collective and of its group, by pass.
        small: (6, 3n) out: columns of `_SMALL`, codes of layer, word, collective and group.
        large: (5, 3n) out: columns of `_LARGE`, bytes moved; 0 if nothing moves, as its codes.
        moves: (3n) out: whether anything moves.
    """
    for i in range(len(rows)):
        row = rows[i]
        for k in range(3):
            out = 3 * i + k
            word = row.words[COMM + k]
            moving = word < meanings.shape[2]
            small[0, out], small[1, out] = source_id, row.row
            small[2, out], small[3, out] = layers[row.words[LAYER]], comms[word]
            small[4, out] = meanings[0, k, word] if moving else 0
            small[5, out] = meanings[1, k, word] if moving else 0
            large[0, out], large[1, out] = row.line, row.compute[k]
            large[2, out], large[3, out] = row.bytes[k], row.update
            large[4, out] = row.bytes[k] if moving else 0
            moves[out] = moving


@functools.lru_cache(maxsize=2)
def _passes(rows: int) -> pa.DictionaryArray:
    numbers = np.tile(np.arange(_WIDTH, dtype=np.int32), rows)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(PASSES))


def pass_columns(
    rows: Records,
    source_id: int,
    words: Words,
    repeat: Repeat | None,
    describe: Callable[[list[int]], dict[str, str]],
) -> dict[str, pa.Array]:
    """Return columns of `workload_passes`, 3 values per row.

    Args:
        rows: `ROW` records.
        words: Their words.
        repeat: The plan's micro-batches, if it has any.
        describe: Gives the attributes for tokens of a dependency and an extension; called once for
            each pair that occurs.
    """
    texts, size = words.texts(), len(rows) * _WIDTH
    seen = np.zeros((1 + _WIDTH, len(texts)), np.bool_)
    more = _mark(rows, seen[0], seen[1:])
    layer_of, layers = arrow.renumbered(seen[0], texts)
    comm_of, comms = arrow.renumbered(np.bitwise_or.reduce(seen[1:]), texts)
    moved = MEANING[seen[1:, :_MOVING]]
    collective_of, collectives = arrow.renumbered(_among(moved[:, 0], COLLECTIVES), COLLECTIVES)
    group_of, groups = arrow.renumbered(_among(moved[:, 1], GROUPS), GROUPS)
    meanings = np.stack([collective_of[MEANING[..., 0]], group_of[MEANING[..., 1]]])
    small, large = np.empty((6, size), np.int32), np.empty((5, size), np.int64)
    moves = np.empty(size, np.bool_)
    _spread(rows, source_id, layer_of, comm_of, meanings, small, large, moves)
    *integers, layer, comm, collective, group = small
    *longs, moving = large
    micro_batch, layer_index = _blocks(rows, repeat)
    given = arrow.bitmap(moves)
    return {
        **{name: pa.array(column) for name, column in zip(_SMALL, integers, strict=True)},
        **{name: pa.array(column) for name, column in zip(_LARGE, longs, strict=True)},
        "layer": arrow.coded(layer, layers),
        "layer_index": layer_index,
        "micro_batch": micro_batch,
        "pass": _passes(len(rows)),
        "collective": arrow.coded(collective, collectives, given),
        "group_kind": arrow.coded(group, groups, given),
        "bytes": arrow.stored(moving, pa.int64(), given),
        "raw_comm": arrow.coded(comm, comms),
        "attributes": _attributes(rows, describe)
        if more
        else arrow.nothing(arrow.ATTRIBUTES, size),
    }


def _among(codes: Codes, names: Sequence[str]) -> Mask:
    """Return which names occur."""
    return np.isin(np.arange(len(names)), codes)


def _attributes(rows: Records, describe: Callable[[list[int]], dict[str, str]]) -> pa.Array:
    """Return maps for every pass, of the fields of the rows without a column."""
    written = rows["words"][:, DEPENDENCY : EXTENSION + 1]
    distinct, where = np.unique(written, axis=0, return_inverse=True)
    maps = [list(describe(tokens).items()) or None for tokens in distinct.tolist()]
    return pa.array(maps, arrow.ATTRIBUTES).take(pa.array(np.repeat(where.ravel(), _WIDTH)))


def _blocks(rows: Records, repeat: Repeat | None) -> tuple[pa.Array, pa.Array]:
    """Return number of the micro-batch and index in it."""
    if repeat is None:
        nothing = arrow.nothing(pa.int32(), len(rows) * _WIDTH)
        return nothing, nothing
    places, inside = repeat.places(rows)
    found = [np.where(inside, part, NULL) for part in np.divmod(places, repeat.length)]
    block, place = (arrow.numbers(np.repeat(part, _WIDTH), pa.int32()) for part in found)
    return block, place
