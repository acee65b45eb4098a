"""Read the three records of pipeline-training logs: header, layer row, progress.

Each function reads one record at a position in a line and returns first the position after it, or a
negative number if the text does not match. Any number of blanks may separate the parts of a record.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.fields import (
    BROKEN,
    NO_NUMBER,
    at,
    behind,
    blanks,
    count,
    decimal,
    decimal_float,
    pair_ms,
    time_ms,
    word,
)
from tracelake.kernels.compiled import inlined, kernel

NAME_LIMIT = 64
NAME_BASE = 1 << 14  # codes of layers start here if the name is not a number below this
NAME_SLOTS = 1 << 12

_INDEX_DIGITS = 9
_NO_NAME = np.zeros(256, np.bool_)  # bytes that end a name, or that a name cannot have
_NO_NAME[[ord(c) for c in "\n =[]"]] = True
_INT_LIMIT = 1 << 31


EPOCH = word(b"| epoch ")
LAYER_ROW = word(b"layer[")
RANK = word(b"[rank:")
_AVG_OP = word(b"avg/op=")
_BAR = word(b"|")
_BATCHES = word(b"batches")
_BRACKET = word(b"]")
_COLON = word(b"]:")
_COMM = word(b"comm=")
_COMMA = word(b",")
_COMPUTE = word(b"compute=")
_EQUALS = word(b"=")
_FX_NODES = word(b"fx_nodes")
_LOSS = word(b"loss")
_LR = word(b"lr")
_MS_BATCH = word(b"ms/batch")
_OPS = word(b"ops=")
_PPL = word(b"ppl")
_SLASH = word(b"/")
_STAGE = word(b"stage:")
_STEP = word(b"step ")
_TOTAL = word(b"total=")
_FORWARD = word(b"forward ")
_FORWARD_TIME = word(b"time")
_MARKS = np.zeros(256, np.bool_)  # first bytes of a record, or of the end of a header
_MARKS[[ord(c) for c in "\n[|fs"]] = True


class Names(NamedTuple):
    """Layer names that are not plain numbers, or large ones, interned over a whole log."""

    table: npt.NDArray[np.uint64]  # hashes by slot; the code is NAME_BASE + slot
    new: npt.NDArray[np.int64]  # (code, start, end) of each name first seen in this block
    counts: npt.NDArray[np.int64]  # number of new names in this block, and of all names


def names() -> Names:
    """Return an empty table of names."""
    return Names(
        np.zeros(NAME_SLOTS, np.uint64),
        np.zeros((NAME_SLOTS, 3), np.int64),
        np.zeros(2, np.int64),
    )


@kernel
def _name(data, i, end):
    """Return the bracket after a layer's name, or BROKEN; its index or its code if plain."""
    start = i
    number = 0
    while i < end and 48 <= data[i] <= 57 and i - start < _INDEX_DIGITS:
        number = number * 10 + (data[i] - 48)
        i += 1
    if start < i < end and data[i] == 93:
        plain = number < NAME_BASE and (data[start] != 48 or i == start + 1)
        return i, number, number if plain else -1
    while i < end and not _NO_NAME[data[i]] and i - start <= NAME_LIMIT:
        i += 1
    return (i if start < i < end and data[i] == 93 and i - start <= NAME_LIMIT else BROKEN), -1, -1


@kernel
def intern_name(data, start, names):
    """Return the code of the non-numeric name at `start`; -1 if there are too many."""
    mark = np.uint64(0xCBF29CE484222325)
    end = start
    while data[end] != 93:
        mark = (mark ^ np.uint64(data[end])) * np.uint64(0x100000001B3)
        end += 1
    slot = np.int64(mark % np.uint64(NAME_SLOTS))
    while names.table[slot] != 0 and names.table[slot] != mark:
        slot = (slot + 1) % NAME_SLOTS
    if names.table[slot] == 0:
        if 2 * names.counts[1] >= NAME_SLOTS:
            return -1
        names.table[slot] = mark
        k = names.counts[0]
        names.new[k, 0], names.new[k, 1], names.new[k, 2] = NAME_BASE + slot, start, end
        names.counts[0] += 1
        names.counts[1] += 1
    return NAME_BASE + slot


@kernel
def layer(data, i, end):
    """Read a layer row whose name begins at `i`.

    Returns:
        End, BROKEN or NO_NUMBER; code of the name (-1: to be interned), its index, module calls,
        total, average, compute and comm ns (-1 where not printed, as the index).
    """
    i, index, code = _name(data, i, end)
    i = behind(data, i, end, _COLON)
    avg = compute = comm = -1
    k = behind(data, i, end, _TOTAL)
    if k >= 0:
        i, total = time_ms(data, k, end)
        i = behind(data, i, end, _COMMA)
        k = behind(data, i, end, _OPS)
        if k >= 0:
            i, calls = count(data, k, end)
            i = behind(data, behind(data, i, end, _COMMA), end, _AVG_OP)
            stop, avg = time_ms(data, i, end)
        else:
            i = behind(data, behind(data, i, end, _FX_NODES), end, _EQUALS)
            stop, calls = count(data, i, end)
    else:
        i, compute, _ = pair_ms(data, i, end, _COMPUTE)
        i, comm, _ = pair_ms(data, behind(data, i, end, _COMMA), end, _COMM)
        i, total, avg = pair_ms(data, behind(data, i, end, _COMMA), end, _TOTAL)
        stop, calls = count(data, behind(data, behind(data, i, end, _COMMA), end, _OPS), end)
    return stop, code, index, calls, total, avg, compute, comm


@inlined
def _opening(data, i, end):
    """Return whether a record may begin here; the end of the line counts as one."""
    c = data[i]
    if c == 91:
        return at(data, i, end, RANK) or at(data, i - 5, end, LAYER_ROW)
    return c == 10 or (c == 124 and at(data, i, end, EPOCH))


@inlined
def _forward(data, i, end):
    return at(data, i, end, _FORWARD) and at(data, i + 8, end, _FORWARD_TIME)


@kernel
def header(data, i, end):
    """Read a block header; return its end, 0 if none begins, or BROKEN; rank, stage, step."""
    k = i + 6
    while k < end and not (_MARKS[data[k]] and (_opening(data, k, end) or _forward(data, k, end))):
        k += 1
    if not _forward(data, k, end):
        return 0, 0, 0, 0
    k += 1
    while k < end and not (_MARKS[data[k]] and (_opening(data, k, end) or at(data, k, end, _STEP))):
        k += 1
    k, step = count(data, behind(data, k, end, _STEP), end)
    i, rank = count(data, behind(data, i, end, RANK), end)
    i, stage = count(data, behind(data, i, end, _STAGE), end)
    if behind(data, i, end, _BRACKET) < 0 or max(rank, stage, step) >= _INT_LIMIT:
        k = BROKEN
    return k, rank, stage, step


@kernel
def progress(data, i, end):
    """Read a progress record.

    Returns:
        End, BROKEN or NO_NUMBER; epoch, step, steps of the epoch, ns; then value and start of text
        (see `decimal_float`) of lr, loss and ppl.
    """
    i, epoch = count(data, behind(data, i, end, EPOCH), end)
    i, step = count(data, behind(data, i, end, _BAR), end)
    i, steps = count(data, behind(data, i, end, _SLASH), end)
    i = behind(data, behind(data, i, end, _BATCHES), end, _BAR)
    i, lr, lr_text = decimal_float(data, behind(data, i, end, _LR), end)
    i = behind(data, behind(data, i, end, _BAR), end, _MS_BATCH)
    time = 0
    if i >= 0:
        i, time = decimal(data, blanks(data, i, end), end)
    i = behind(data, i, end, _BAR)
    i, loss, loss_text = decimal_float(data, behind(data, i, end, _LOSS), end)
    i = behind(data, i, end, _BAR)
    i, ppl, ppl_text = decimal_float(data, behind(data, i, end, _PPL), end)
    if i >= 0 and max(epoch, step, steps) >= _INT_LIMIT:
        i = NO_NUMBER
    bar = behind(data, i, end, _BAR)
    if bar > 0 and not at(data, bar - 1, end, EPOCH):
        i = bar
    return i, epoch, step, steps, time, lr, lr_text, loss, loss_text, ppl, ppl_text
