"""Split lines of pipeline-training logs into pieces, progress records and other lines.

A piece is the beginning of a record: a block header, a layer row or a progress record, well formed
or not. One physical line can hold pieces of several processes, with any text before and between
them.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.fields import BROKEN, NO_NUMBER, at, word
from tracelake.formats.optimus.records import (
    EPOCH,
    LAYER_ROW,
    RANK,
    Names,
    header,
    intern_name,
    layer,
    progress,
)
from tracelake.kernels.compiled import kernel, pointer, typed

PIECE = np.dtype(
    [
        ("line", "i8"),
        ("code", "i8"),  # rank, or code of the layer's name
        ("count", "i8"),  # step, or module calls
        ("place", "i4"),  # stage, or index of the layer (-1: its name is no number)
        ("kind", "i2"),
        ("reason", "i2"),
    ],
    align=True,
)
DETAIL = np.dtype(  # fields that are not needed to find the owner of a row
    [
        ("start", "i8"),  # of the line, in the file
        ("size", "i8"),  # of the line, in bytes
        ("total", "i8"),
        ("avg", "i8"),  # -1: not printed, as the two below
        ("compute", "i8"),
        ("comm", "i8"),
    ],
    align=True,
)
PROGRESS = np.dtype(
    [
        ("line", "i8"),
        ("epoch", "i8"),
        ("step", "i8"),
        ("steps_per_epoch", "i8"),
        ("step_time_ns", "i8"),
        ("lr", "f8"),
        ("loss", "f8"),
        ("ppl", "f8"),
        ("lr_text", "i8"),  # start of the text of a value with too many digits, else -1
        ("loss_text", "i8"),
        ("ppl_text", "i8"),
    ],
    align=True,
)
OTHER = np.dtype([("line", "i8"), ("start", "i8"), ("end", "i8"), ("kind", "i8")], align=True)

HEADER, LAYER, RECORD, BAD = 0, 1, 2, 3
BAD_HEADER, BAD_LAYER, BAD_PROGRESS, BAD_NUMBER = 0, 1, 2, 3
BLANK, LAUNCHER, NCCL, FX_GRAPH, PLAIN, UNFINISHED, RECORDED = 0, 1, 2, 3, 4, 5, 6
PIECES, RECORDS, OTHERS, LINES = 0, 1, 2, 3  # indices of the counters

_TRIGGER = np.zeros(256, np.bool_)
_TRIGGER[[ord(c) for c in "\n[|>=:N"]] = True

_ZERO = typed(0)

_ROW, _SKIPPED = word(b"  layer["), 7  # beginning of most lines, and how much of it is no trigger
# What marks a line, or the end of what does: a word has 8 bytes at most.
_STAGES = word(b"ge2rank ")
_DATA_SIZE = word(b"ata_size")
_BATCHES = word(b"nbatches")
_PER_SERVER = word(b"r server")
_ELAPSED = word(b" elapsed")
_COMPLETED = word(b", run co")
_TORCH_RANK = word(b"[rank")
_GRAPH_NODE = word(b"n.op:")
_PART_NODE = word(b"-- node.")
_KEY = word(b"--- key:")
_STAGE = word(b"***** st")
_CROSSED = word(b"********")
_SPECIAL = word(b"special_")
_ARGS = word(b"de.args[")
_NCCL = word(b"NCCL ")


class Buffers(NamedTuple):
    """The output of the scan of a block.

    Attributes:
        pieces: Pieces, after those held from earlier blocks.
        details: Details of each piece.
        counts: How much of each array is filled, and the lines seen.
        others: Lines that may describe the run (those with a record are of kind RECORDED), or end
            the file unfinished.
        kinds: Lines of each kind without a record, `others` left out.
    """

    pieces: npt.NDArray[np.void]
    details: npt.NDArray[np.void]
    records: npt.NDArray[np.void]
    others: npt.NDArray[np.void]
    counts: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int64]


def buffers(size: int, held: int) -> Buffers:
    """Return buffers for the held pieces and a block of `size` bytes; a piece takes 6 or more."""
    return Buffers(
        pieces=np.empty(held + size // 6 + 1, PIECE),
        details=np.empty(held + size // 6 + 1, DETAIL),
        records=np.empty(size // 7 + 1, PROGRESS),
        others=np.empty(size // 4 + 1, OTHER),
        counts=np.zeros(4, np.int64),
        kinds=np.zeros(6, np.int64),
    )


def room(buf: Buffers, size: int, spare: int) -> Buffers:
    """Return buffers for a block of `size` bytes after `buf`; reuse arrays that fit."""
    buf.kinds[:] = 0
    held = int(buf.counts[PIECES])
    if held + size // 6 < buf.pieces.size and size // 4 < buf.others.size:
        return buf
    grown = buffers(max(size, 4 * (buf.others.size - 1)), max(held, spare))
    grown.pieces[:held] = buf.pieces[:held]
    grown.details[:held] = buf.details[:held]
    grown.counts[PIECES] = held
    return grown


def keep_from(buf: Buffers, done: int) -> None:
    """Hold the pieces after the first `n`."""
    held = int(buf.counts[PIECES]) - done
    for kept in (buf.pieces, buf.details):  # as bytes: NumPy copies records one by one
        kept[:held].view(np.uint8)[:] = kept[done : done + held].view(np.uint8)
    buf.counts[PIECES] = held


@kernel
def _identifier(data, i):
    """Return whether the byte continues a name, so that what follows is part of it."""
    if i < 0:
        return False
    c = data[i]
    return 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c in (95, 46)


@kernel
def _layer(data, i, end, piece, detail, names):
    stop, code, index, calls, total, avg, compute, comm = layer(data, i + 1, end)
    if stop >= 0 and code < 0:
        code = intern_name(data, i + 1, names)
        stop = stop if code >= 0 else BROKEN
    if stop < 0 and _identifier(data, i - 6):
        stop = 0
    piece.kind, piece.reason = LAYER, BAD_NUMBER if stop == NO_NUMBER else BAD_LAYER
    piece.code, piece.place, piece.count = code, index, calls
    detail.total, detail.avg, detail.compute, detail.comm = total, avg, compute, comm
    return stop


@kernel
def _record(data, i, end, piece, record):
    stop, epoch, step, steps, time, lr, lr_text, loss, loss_text, ppl, ppl_text = progress(
        data, i, end
    )
    piece.kind, piece.reason = RECORD, BAD_NUMBER if stop == NO_NUMBER else BAD_PROGRESS
    record.epoch, record.step = epoch, step
    record.steps_per_epoch, record.step_time_ns = steps, time
    record.lr, record.loss, record.ppl = lr, loss, ppl
    record.lr_text, record.loss_text, record.ppl_text = lr_text, loss_text, ppl_text
    return stop


@kernel
def _header(data, i, end, piece):
    stop, rank, stage, step = header(data, i, end)
    piece.kind, piece.reason = HEADER, BAD_HEADER
    piece.code, piece.place, piece.count = rank, stage, step
    return stop


@kernel
def _speaks(data, i, end):
    """Return whether a statement of the run may be at `i`: a cheap test with false positives."""
    c = data[i]
    if c == 62:
        k = data[i + 2] if i + 2 < end and data[i + 1] == 32 else 0
        return 65 <= k <= 91 or k in (105, 109, 115)
    if c == 61:
        return (
            at(data, i - 8, i, _STAGES)
            or at(data, i - 8, i, _DATA_SIZE)
            or at(data, i - 8, i, _BATCHES)
        )
    if c == 58:
        return at(data, i - 8, i, _PER_SERVER) or at(data, i - 8, i, _ELAPSED)
    if c == 91 and at(data, i, end, RANK):
        i += 6
        while i < end and 48 <= data[i] <= 57:
            i += 1
        return at(data, i, end, _COMPLETED)
    return False


@kernel
def _kind(data, i, end):
    """Return kind of a line without a record, by its beginning."""
    while i < end and data[i] in (32, 9):
        i += 1
    if i == end:
        return BLANK
    if at(data, i, end, _TORCH_RANK) and i + 5 < end and 48 <= data[i + 5] <= 57:
        return NCCL
    if data[i] in (69, 70, 73, 87) and i + 5 < end and data[i + 5] == 32:
        for k in range(i + 1, i + 5):
            if not 48 <= data[k] <= 57:
                return PLAIN
        return LAUNCHER
    if (
        at(data, i, end, _GRAPH_NODE)
        or at(data, i, end, _PART_NODE)
        or at(data, i, end, _KEY)
        or at(data, i, end, _STAGE)
        or at(data, i, end, _CROSSED)
        or at(data, i, end, _SPECIAL)
    ):
        return FX_GRAPH
    return PLAIN


@kernel
def _file(data, start, end, line, seen, buf):
    """Count a line without a record, or store it to be read again."""
    recorded, broken, nccl, nodes, speaks, last = seen
    text = end - 1 if end > start and data[end - 1] == 13 else end
    kind = _kind(data, start, text)
    if kind == PLAIN:
        kind = NCCL if nccl else FX_GRAPH if nodes else PLAIN
    if recorded:
        kind = RECORDED
    elif broken or (last and kind == PLAIN):
        kind = UNFINISHED
    if speaks or kind == UNFINISHED:
        other = buf.others[buf.counts[OTHERS]]
        other.line, other.start, other.end, other.kind = line, start, text, kind
        buf.counts[OTHERS] += 1
    else:
        buf.kinds[kind] += 1


@kernel
def scan(data: npt.NDArray[np.uint8], line: int, offset: int, buf: Buffers, names: Names) -> None:
    """Scan a block of whole lines whose first is `line`, at `offset` of the file.

    It fills `buf` from the start, pieces from their count on. A last line without newline that has
    a broken record, or plain text, is of kind UNFINISHED and gives no pieces.
    """
    pieces, details = buf.pieces, buf.details
    records, counts = buf.records, buf.counts
    counts[RECORDS] = counts[OTHERS] = counts[LINES] = names.counts[0] = 0
    text: Any = pointer(data.ctypes.data)
    end = data.size
    i = start = filed = record = _ZERO
    first = found = counts[PIECES]
    speaks = broken = nccl = nodes = False
    while i < end or start < end:
        if i < end and not _TRIGGER[text[i]]:
            i += 1
            continue
        if i == end or text[i] == 10:
            for k in range(first, found):
                details[k].size = i - start
            cut_off = broken and i == end
            found, filed = (first, record) if cut_off else (found, filed)
            if speaks or found == first:
                seen = (found > first, broken, nccl, nodes, speaks, i == end)
                _file(text, start, i, line, seen, buf)
            line += 1
            counts[LINES] += 1
            first, record = found, filed
            speaks = broken = nccl = nodes = False
            start = i + 1
            i = start + _SKIPPED * at(text, start, end, _ROW)
            continue
        stop = 0
        if text[i] == 91:
            if at(text, i - 5, end, LAYER_ROW):
                stop = _layer(text, i, end, pieces[found], details[found], names)
            elif at(text, i, end, RANK):
                stop = _header(text, i, end, pieces[found])
            nodes |= at(text, i - 7, end, _ARGS)
        elif text[i] == 124 and at(text, i, end, EPOCH):
            stop = _record(text, i, end, pieces[found], records[filed])
            records[filed].line = line
            filed += stop > 0
        if stop:
            pieces[found].line, details[found].start = line, offset + start
            if stop < 0:
                pieces[found].kind = BAD
                broken = True
            found += 1
        else:
            nccl |= at(text, i, end, _NCCL)
            speaks |= _speaks(text, i, end)
        i = max(stop, i + 1)
    counts[PIECES], counts[RECORDS] = found, filed
