"""Kernels for the three records of pipeline-training logs: header, layer row, progress.

Each reads one record at a place in a line and gives first the place behind it, or a negative number
where the text is none. Blanks between the parts of a record are free. Bytes are given by pointer and
values are returned: an array that is handed on costs more than what is read.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

BROKEN, NO_NUMBER = -1, -2  # what a reader gives for text that is no record
NAME_LIMIT = 64
NAME_BASE = 1 << 40  # codes of layer names that are not plain numbers start here
NAME_SLOTS = 1 << 12

_INDEX_DIGITS = 9
_INT_LIMIT = 1 << 31
_NS_DIGITS = 6  # a millisecond has so many decimal digits of nanoseconds
_MS_LIMIT = 10**12
_EXACT_DIGITS = 15  # a float holds every whole number of so many digits

_kernel = nb.njit(nogil=True, cache=True)


def word(text: bytes) -> int:
    """Up to 8 ASCII bytes as one number, the form in which kernels compare them."""
    assert len(text) <= 8
    return int.from_bytes(text, "little")


EPOCH = word(b"| epoch")
LAYER_ROW = word(b"layer[")
RANK = word(b"[rank:")
_AVG = word(b"(avg=")
_AVG_OP = word(b"avg/op=")
_BAR = word(b"|")
_BATCHES = word(b"batches")
_BRACKET = word(b"]")
_CLOSE = word(b")")
_COLON = word(b"]:")
_COMM = word(b"comm=")
_COMMA = word(b",")
_COMPUTE = word(b"compute=")
_EQUALS = word(b"=")
_FX_NODES = word(b"fx_nodes")
_INF = word(b"inf")
_LOSS = word(b"loss")
_LR = word(b"lr")
_MS = word(b"ms")
_MS_BATCH = word(b"ms/batch")
_NAN = word(b"nan")
_OPS = word(b"ops=")
_PPL = word(b"ppl")
_SLASH = word(b"/")
_STAGE = word(b"stage:")
_STEP = word(b"step ")
_TOTAL = word(b"total=")
_FORWARD = word(b"forward ")
_FORWARD_TIME = word(b"time")


class Names(NamedTuple):
    """Layer names that are not plain numbers, interned over a whole log."""

    table: npt.NDArray[np.uint64]  # hashes by slot; the code is NAME_BASE + slot
    new: npt.NDArray[np.int64]  # (code, start, end) of each name first seen in this block
    counts: npt.NDArray[np.int64]  # new in this block, all


def names() -> Names:
    """No names yet."""
    return Names(
        np.zeros(NAME_SLOTS, np.uint64),
        np.zeros((NAME_SLOTS, 3), np.int64),
        np.zeros(2, np.int64),
    )


@intrinsic  # type: ignore[misc]
def pointer(typing_context, address):
    """Address of bytes as a pointer: unlike an array it is not counted at every call."""

    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint8)(types.uintp), code


@_kernel
def at(data, i, end, text):
    """Whether the word stands at `i`."""
    if i < 0:
        return False
    while text:
        if i >= end or data[i] != text & 255:
            return False
        text >>= 8
        i += 1
    return True


@_kernel
def _behind(data, i, end, text):
    """Behind blanks and the word; negative as `i` was, or BROKEN where it does not stand."""
    if i < 0:
        return i
    while i < end and data[i] == 32:
        i += 1
    while text:
        if i >= end or data[i] != text & 255:
            return BROKEN
        text >>= 8
        i += 1
    return i


@_kernel
def _count(data, i, end, text):
    """Behind `text` and a whole number of up to 18 digits; the number."""
    i = start = _behind(data, _behind(data, i, end, text), end, 0)
    value = 0
    while 0 <= i < end and 48 <= data[i] <= 57:
        if i - start == 18:
            return BROKEN, 0
        value = value * 10 + (data[i] - 48)
        i += 1
    return i if i > start else min(i, BROKEN), value


@_kernel
def _decimal(data, i, end):
    """Behind decimal milliseconds; the ns, exactly."""
    start = i
    value = 0
    while i < end and 48 <= data[i] <= 57 and value < _MS_LIMIT:
        value = value * 10 + (data[i] - 48)
        i += 1
    if i == start or value >= _MS_LIMIT:
        return NO_NUMBER, 0
    left = _NS_DIGITS
    if i < end and data[i] == 46:
        i += 1
        while i < end and 48 <= data[i] <= 57 and left:
            value = value * 10 + (data[i] - 48)
            i += 1
            left -= 1
        if left == _NS_DIGITS or (i < end and 48 <= data[i] <= 57):
            return NO_NUMBER, 0
    while left:
        value *= 10
        left -= 1
    return i, value


@_kernel
def _time(data, i, end, text):
    """Behind `text` and a time in ms; the ns."""
    i = _behind(data, i, end, text)
    if i < 0:
        return i, 0
    i, value = _decimal(data, i, end)
    return _behind(data, i, end, _MS), value


@_kernel
def _pair(data, i, end, text):
    """Behind a time and its average in brackets; both in ns."""
    i, value = _time(data, i, end, text)
    i, avg = _time(data, i, end, _AVG)
    return _behind(data, i, end, _CLOSE), value, avg


@_kernel
def _name(data, i, end):
    """The bracket behind a layer's name or BROKEN; index and code where it is a number."""
    start = i
    number = 0
    while i < end and 48 <= data[i] <= 57 and i - start < _INDEX_DIGITS:
        number = number * 10 + (data[i] - 48)
        i += 1
    if start < i < end and data[i] == 93:
        return i, number, number if data[start] != 48 or i == start + 1 else -1
    while i < end and data[i] != 93 and data[i] != 10 and i - start <= NAME_LIMIT:
        i += 1
    return (i if start < i < end and data[i] == 93 and i - start <= NAME_LIMIT else BROKEN), -1, -1


@_kernel
def intern_name(data, start, names):
    """Code of the name that begins at `start` and is no plain number; -1: there are too many."""
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
        new = names.new[names.counts[0]]
        new[0], new[1], new[2] = NAME_BASE + slot, start, end
        names.counts[:] += 1
    return NAME_BASE + slot


@_kernel
def layer(data, i, end):
    """Reads a layer row whose name begins at `i`.

    Returns:
        End, BROKEN or NO_NUMBER; code of the name (-1: to be interned), its index, module calls,
        total, average, compute and comm ns (-1 where not printed, as the index).
    """
    i, index, code = _name(data, i, end)
    i = _behind(data, i, end, _COLON)
    avg = compute = comm = -1
    if _behind(data, i, end, _TOTAL) >= 0:
        i, total = _time(data, i, end, _TOTAL)
        i = _behind(data, i, end, _COMMA)
        stop, calls = _count(data, _behind(data, i, end, _FX_NODES), end, _EQUALS)
        if stop < 0:
            i, calls = _count(data, i, end, _OPS)
            stop, avg = _time(data, _behind(data, i, end, _COMMA), end, _AVG_OP)
    else:
        i, compute, _ = _pair(data, i, end, _COMPUTE)
        i, comm, _ = _pair(data, _behind(data, i, end, _COMMA), end, _COMM)
        i, total, avg = _pair(data, _behind(data, i, end, _COMMA), end, _TOTAL)
        stop, calls = _count(data, _behind(data, i, end, _COMMA), end, _OPS)
    return stop, code, index, calls, total, avg, compute, comm


@_kernel
def opening(data, i, end):
    """Whether a record may begin here; the end of the line counts as one."""
    c = data[i]
    if c == 91:
        return at(data, i, end, RANK) or at(data, i - 5, end, LAYER_ROW)
    return c == 10 or (c == 124 and at(data, i, end, EPOCH))


@_kernel
def _forward(data, i, end):
    return at(data, i, end, _FORWARD) and at(data, i + 8, end, _FORWARD_TIME)


@_kernel
def header(data, i, end):
    """Reads a block header; its end, 0 where none begins, or BROKEN; rank, stage, step."""
    k = i + 6
    while k < end and not opening(data, k, end) and not _forward(data, k, end):
        k += 1
    if not _forward(data, k, end):
        return 0, 0, 0, 0
    while k < end and not opening(data, k, end) and not at(data, k, end, _STEP):
        k += 1
    k, step = _count(data, k, end, _STEP)
    i, rank = _count(data, i, end, RANK)
    i, stage = _count(data, i, end, _STAGE)
    if _behind(data, i, end, _BRACKET) < 0 or max(rank, stage, step) >= _INT_LIMIT:
        k = BROKEN
    return k, rank, stage, step


@_kernel
def _float(data, i, end):
    """Behind a float; the value, and its start where it has more digits than are exact here."""
    if i < 0:
        return i, 0.0, -1
    i = start = _behind(data, i, end, 0)
    minus = i < end and data[i] == 45
    i += minus
    if at(data, i, end, _NAN) or at(data, i, end, _INF):
        value = np.nan if data[i] == 110 else np.inf
        return i + 3, -value if minus else value, -1
    mantissa = digits = scale = 0
    point = False
    while i < end and (48 <= data[i] <= 57 or (data[i] == 46 and not point)):
        if data[i] == 46:
            point = True
        else:
            mantissa = mantissa * 10 + (data[i] - 48) if digits < _EXACT_DIGITS else 0
            digits += 1
            scale += point
        i += 1
    if digits == 0 or data[i - 1] == 46:
        return NO_NUMBER, 0.0, -1
    wide = digits > _EXACT_DIGITS
    power = i + 2 if i + 1 < end and data[i + 1] in (43, 45) else i + 1
    if power < end and data[i] == 101 and 48 <= data[power] <= 57:
        wide = True
        i = power
        while i < end and 48 <= data[i] <= 57:
            i += 1
    if wide:
        return i, 0.0, start
    # Both numbers are exact, so the one rounding of the division is right.
    value = mantissa / 10.0**scale
    return i, -value if minus else value, -1


@_kernel
def progress(data, i, end):
    """Reads a progress record.

    Returns:
        End, BROKEN or NO_NUMBER; epoch, step, steps of the epoch, ns; then value and start of text
        (see `_float`) of lr, loss and ppl.
    """
    i, epoch = _count(data, i, end, EPOCH)
    i, step = _count(data, i, end, _BAR)
    i, steps = _count(data, i, end, _SLASH)
    i = _behind(data, _behind(data, i, end, _BATCHES), end, _BAR)
    i, lr, lr_text = _float(data, _behind(data, i, end, _LR), end)
    i = _behind(data, _behind(data, i, end, _BAR), end, _MS_BATCH)
    time = 0
    if i >= 0:
        i, time = _decimal(data, _behind(data, i, end, 0), end)
    i = _behind(data, i, end, _BAR)
    i, loss, loss_text = _float(data, _behind(data, i, end, _LOSS), end)
    i = _behind(data, i, end, _BAR)
    i, ppl, ppl_text = _float(data, _behind(data, i, end, _PPL), end)
    if i >= 0 and max(epoch, step, steps) >= _INT_LIMIT:
        i = NO_NUMBER
    bar = _behind(data, i, end, _BAR)
    if bar > 0 and not at(data, bar - 1, end, EPOCH):
        i = bar
    return i, epoch, step, steps, time, lr, lr_text, loss, loss_text, ppl, ppl_text
