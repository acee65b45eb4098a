"""Scan the lines of pipeline-training logs for pieces, progress records and other lines.

A piece is the beginning of a record: a block header, a layer row or a progress record, well formed
or not. One physical line can hold pieces of several processes, with any text before and between
them.
"""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple

import numpy as np

from tracelake.kernels.compiled import inlined, kernel, leading_zeros, pointer, typed
from tracelake.kernels.numbers import (
    NULL,
    Bytes,
    Floats,
    Longs,
    byte_set,
    decimal_ns,
    digits_end,
    short_decimal_ns,
    whole_number,
)
from tracelake.kernels.tokens import Tokens, intern
from tracelake.kernels.words import behind_blanks, is_at, word_of

# Columns of pieces. A row has INDEX only if its layer's name is a number, and of the last three
# what is printed. RANK, STAGE and STEP of a row are those of its block.
LINE, INDEX, CALLS, TOTAL, AVG, COMPUTE, COMM, RANK, STAGE, STEP, CODE, KIND, FATE, START = range(
    14
)
SLOT = CODE  # of a header
HEADER, LAYER, RECORD, BAD = range(4)
# A fate is the number of a reason to reject the piece, or how the rank of a row is known. Here a
# good piece gets BLOCK if no other header or row, good or bad, is on its line, else MERGED.
BAD_HEADER, BAD_LAYER, BAD_PROGRESS, BAD_NUMBER = range(4)
BLOCK, MERGED, BY_PLACE = -1, -2, -3

# Columns of progress records, and of their floats; TEXT is where the record begins if a float has
# too many digits for the scan, else -1.
EPOCH, NUMBER, NUMBERS, TIME, TEXT, AT_LINE = range(6)
LR, LOSS, PPL = range(3)

# Columns of other lines, and their kinds; RECORDED has pieces.
OTHER_LINE, FIRST, END, OTHER_KIND = range(4)
BLANK, LAUNCHER, NCCL, FX_GRAPH, PLAIN, UNFINISHED, RECORDED = range(7)

PIECES, RECORDS, OTHERS = range(3)  # indices of the counters

# The code of a layer is also its place in the model: EMBED, then one more than the number that is
# its name, and for other names, or larger numbers, NAMED and more.
EMBED, NAMED = 0, (1 << 14) + 1
NAMES = 1 << 11
NAME_BYTES = 64

_SMALL_BYTES = 1 << 20  # to map so little memory takes longer than to read a small log

_INDEX_DIGITS, _COUNT_DIGITS, _SEVERITY_DIGITS = typed(9), typed(18), typed(4)
_EXACT = 1 << 53  # a float can represent every integer up to it
_INT_LIMIT = 1 << 31
_NS_LIMIT = 10**18
_BROKEN, _NO_NUMBER = -1, -2  # results of a reader whose text does not match


# What a form has after a word: a time with its unit, a count, or milliseconds. Blanks may stand
# before the last two, and before every word.
_NOTHING, _WITH_UNIT, _COUNT, _MS = range(4)


def _forms(*forms: tuple[tuple[bytes, int, int], ...]) -> Longs:
    """Return forms as arrays of (word, what follows it, its column), to an empty word."""
    table = np.zeros((len(forms), 1 + max(map(len, forms)), 3), np.int64)
    for form, steps in zip(table, forms, strict=True):
        form[: len(steps)] = [(word_of(word), *field) for word, *field in steps]
    return table


_COMMA, _BAR = (b",", 0, 0), (b"|", 0, 0)
_AVERAGE = ((b"(avg=", _WITH_UNIT, AVG), (b")", 0, 0), _COMMA)
_COLON_TOTAL = ((b"]:", 0, 0), (b"total=", _WITH_UNIT, TOTAL), _COMMA)
_FORMS = _forms(
    (*_COLON_TOTAL, (b"ops=", _COUNT, CALLS), _COMMA, (b"avg/op=", _WITH_UNIT, AVG)),
    (*_COLON_TOTAL, (b"fx_nodes", 0, 0), (b"=", _COUNT, CALLS)),
    (
        *((b"]:", 0, 0), (b"compute=", _WITH_UNIT, COMPUTE), *_AVERAGE),
        *((b"comm=", _WITH_UNIT, COMM), *_AVERAGE),
        *((b"total=", _WITH_UNIT, TOTAL), *_AVERAGE, (b"ops=", _COUNT, CALLS)),
    ),
    ((b"[rank:", _COUNT, RANK), (b"stage:", _COUNT, STAGE), (b"]", 0, 0)),
    ((b"step ", _COUNT, STEP),),
    ((b"[rank:", _COUNT, RANK), (b", run co", 0, 0)),
    (
        *((b"| epoch ", _COUNT, EPOCH), (b"|", _COUNT, NUMBER), (b"/", _COUNT, NUMBERS)),
        *((b"batches", 0, 0), _BAR, (b"lr", 0, 0)),
    ),
    (_BAR, (b"ms/batch", _MS, TIME), _BAR, (b"loss", 0, 0)),
    (_BAR, (b"ppl", 0, 0)),
)
_LAYERS = typed(3)  # first ones, of which a layer row has one
_RANK_AND_STAGE, _STEP, _COMPLETED, _EPOCH = map(typed, range(3, 7))  # and one before each float

_RANK_WORD, _LAYER_WORD, _EPOCH_WORD = word_of(b"[rank:"), word_of(b"layer["), word_of(b"| epoch ")
_FORWARD, _FORWARD_TIME, _STEP_WORD = word_of(b"forward "), word_of(b"time"), word_of(b"step ")
_BAR_WORD, _UNIT, _NAN, _INF = map(word_of, (b"|", b"ms", b"nan", b"inf"))
# Beginning of most lines, and how much of it is no trigger.
_ROW, _SKIPPED = word_of(b"  layer["), 7
# What marks a line, or the end of what does.
_STATED = np.array(
    [*map(word_of, (b"ge2rank ", b"ata_size", b"nbatches", b"r server", b" elapsed"))]
)
_TORCH_RANK, _ARGUMENTS, _NCCL = word_of(b"[rank"), word_of(b"de.args["), word_of(b"NCCL ")
_GRAPH = np.array(
    [*map(word_of, (b"n.op:", b"-- node.", b"--- key:", b"***** st", b"********", b"special_"))]
)

_TRIGGER = byte_set(b"\n[|>=:N")
_MARK = byte_set(b"\n[|fs")  # first bytes of a record, or of what ends a header
_NO_NAME = byte_set(b"\n =[]")  # bytes that end a name, or that a name cannot have
_IDENTIFIER = byte_set(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.")
_SETTING = byte_set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ[ims")  # first bytes of what is stated after `> `
_SEVERITY = byte_set(b"EFIW")
_ZERO = typed(0)


class Found(NamedTuple):
    """Hold what the scan finds in a block.

    Attributes:
        pieces: Those held from earlier blocks, then those of the block.
        others: Lines that may describe the run, or end the file unfinished.
        counts: How many pieces, records and other lines there are.
        kinds: Lines of each kind without a record, `others` left out.
    """

    pieces: Longs
    records: Longs
    floats: Floats
    others: Longs
    counts: Longs
    kinds: Longs


def _rows(count: int, size: int) -> Longs:
    """Return rows that take memory as they fill; NumPy's own, if large, would take 2 MB at once."""
    if 8 * count * size <= _SMALL_BYTES:
        return np.empty((count, size), np.int64)
    return np.frombuffer(mmap.mmap(-1, 8 * count * size), np.int64).reshape(count, size)


def space(size: int, held: int) -> Found:
    """Return arrays for a block of `size` bytes and held pieces; a piece takes 6 bytes or more."""
    return Found(
        pieces=_rows(START + 1, held + size // 6 + 1),
        records=_rows(AT_LINE + 1, size // 7 + 1),
        floats=_rows(PPL + 1, size // 7 + 1).view(np.float64),
        others=_rows(OTHER_KIND + 1, size // 4 + 1),
        counts=np.zeros(OTHERS + 1, np.int64),
        kinds=np.zeros(RECORDED, np.int64),
    )


def with_space(found: Found, size: int) -> Found:
    """Return arrays with the held pieces and space for a block; the same ones if they suffice."""
    found.kinds[:] = 0
    held, most = int(found.counts[PIECES]), found.others.shape[1]
    if held + size // 6 < found.pieces.shape[1] and size // 4 < most:
        return found
    larger = space(2 * size, 2 * held)
    larger.pieces[:, :held] = found.pieces[:, :held]
    larger.counts[PIECES] = held
    return larger


@inlined
def _any_at(text: Bytes, i: int, end: int, words: Longs) -> bool:
    found = False
    for k in range(words.size):
        found |= is_at(text, i, end, words[k])
    return found


@inlined
def _decimal(text: Bytes, i: int, end: int) -> tuple[int, int]:
    """Read decimal milliseconds; return the exact ns, and the index after them or _NO_NUMBER."""
    value, stop = short_decimal_ns(text, i, end)
    if stop >= 0:
        return value, stop
    while i + 1 < end and text[i] == 48 and 48 <= text[i + 1] <= 57:
        i += 1
    value, stop = decimal_ns(text, i, end)
    return value, (stop if stop >= 0 and value < _NS_LIMIT else _NO_NUMBER)


@inlined
def _float(text: Bytes, i: int, end: int) -> tuple[float, int, bool]:
    """Read a float; return it, the index after it, and whether it has too many digits."""
    minus = i < end and text[i] == 45
    i += minus
    if is_at(text, i, end, _NAN) or is_at(text, i, end, _INF):
        value = np.nan if text[i] == 110 else np.inf
        return (-value if minus else value), i + 3, False
    ns, stop = short_decimal_ns(text, i, end)
    if stop < 0:
        ns, stop = decimal_ns(text, i, end)
    wide = stop < 0 or ns > _EXACT
    if wide:
        whole = digits_end(text, i, end)
        stop = digits_end(text, whole + 1, end) if whole < end and text[whole] == 46 else whole
        if stop in (i, whole + 1):
            return 0.0, _NO_NUMBER, False
    power = stop + 2 if stop + 1 < end and text[stop + 1] in (43, 45) else stop + 1
    if power < end and text[stop] == 101 and 48 <= text[power] <= 57:
        return 0.0, digits_end(text, power, end), True
    # Both numbers are exact, so the single rounding of the division is correct.
    value = ns / 1e6
    return (-value if minus else value), stop, wide


@inlined
def _read(text: Bytes, i: int, end: int, form: int, out: Longs, n: int) -> int:
    """Read a form into columns; return the index after it, _BROKEN or _NO_NUMBER."""
    k = 0
    while _FORMS[form, k, 0]:
        word, field, column = _FORMS[form, k, 0], _FORMS[form, k, 1], _FORMS[form, k, 2]
        i = behind_blanks(text, i, end)
        if not is_at(text, i, end, word):
            return _BROKEN
        i += 8 - (leading_zeros(np.uint64(word)) >> 3)
        if field > _WITH_UNIT:
            i = behind_blanks(text, i, end)
        if field == _COUNT:
            out[column, n], i = whole_number(text, i, end, _COUNT_DIGITS)
        elif field != _NOTHING:
            out[column, n], i = _decimal(text, i, end)
            if field == _WITH_UNIT and i >= 0:
                i = behind_blanks(text, i, end)
                i = i + 2 if is_at(text, i, end, _UNIT) else _BROKEN
        if i < 0:
            return i
        k += 1
    return i


@inlined
def _layer(text: Bytes, i: int, end: int, out: Longs, n: int, names: Tokens, data: Bytes) -> int:
    """Read a layer row whose name begins at `i`; return its end, 0 if it is none, or the fault."""
    for column in range(INDEX, COMM + 1):
        out[column, n] = NULL
    close = i
    while close < end and not _NO_NAME[text[close]] and close - i <= NAME_BYTES:
        close += 1
    stop = _BROKEN
    if i < close < end and text[close] == 93 and close <= i + NAME_BYTES:
        for form in range(_LAYERS):
            found = _read(text, close, end, form, out, n)
            if found >= 0:
                stop = found
                break
            stop = min(stop, found)
    if stop > 0:
        index, digits = whole_number(text, i, close, _INDEX_DIGITS)
        if digits == close:
            out[INDEX, n] = index
        if digits == close and index < NAMED - 1 and (text[i] != 48 or close == i + 1):
            out[CODE, n] = index + 1
        elif names.size[0] < NAMES:
            token = intern(names, data, i, close)
            out[CODE, n] = token + NAMED if token != EMBED else EMBED
        else:
            stop = _BROKEN
    return 0 if stop < 0 and i > 6 and _IDENTIFIER[text[i - 7]] else stop


@inlined
def _opening(text: Bytes, i: int, end: int) -> bool:
    """Return whether a record may begin here; the end of the line counts as one."""
    if text[i] == 91:
        return is_at(text, i, end, _RANK_WORD) or is_at(text, i - 5, end, _LAYER_WORD)
    return text[i] == 10 or (text[i] == 124 and is_at(text, i, end, _EPOCH_WORD))


@inlined
def _header(text: Bytes, i: int, end: int, out: Longs, n: int) -> int:
    """Read a block header; return its end, 0 if there is none, or _BROKEN."""
    k = i + 6
    forward = False
    while k < end:
        if _MARK[text[k]]:
            if _opening(text, k, end) or (forward and is_at(text, k, end, _STEP_WORD)):
                break
            forward |= is_at(text, k, end, _FORWARD) and is_at(text, k + 8, end, _FORWARD_TIME)
        k += 1
    if not forward:
        return 0
    if _read(text, i, end, _RANK_AND_STAGE, out, n) < 0:
        return _BROKEN
    stop = _read(text, k, end, _STEP, out, n)
    return stop if max(out[RANK, n], out[STAGE, n], out[STEP, n]) < _INT_LIMIT else _BROKEN


@inlined
def _progress(text: Bytes, i: int, end: int, out: Longs, floats: Floats, n: int) -> int:
    """Read a progress record; return its end, or the fault."""
    out[TEXT, n] = -1
    stop = i
    for k in range(PPL + 1):
        stop = _read(text, stop, end, _EPOCH + k, out, n)
        if stop >= 0:
            floats[k, n], stop, wide = _float(text, behind_blanks(text, stop, end), end)
            if wide:
                out[TEXT, n] = i
        if stop < 0:
            return stop
    if max(out[EPOCH, n], out[NUMBER, n], out[NUMBERS, n]) >= _INT_LIMIT:
        return _NO_NUMBER
    bar = behind_blanks(text, stop, end)
    closed = is_at(text, bar, end, _BAR_WORD) and not is_at(text, bar, end, _EPOCH_WORD)
    return bar + 1 if closed else stop


@inlined
def _states(text: Bytes, i: int, end: int, out: Longs, n: int) -> bool:
    """Return whether a statement of the run may be at `i`: a cheap test with false positives."""
    if text[i] == 62:
        return bool(i + 2 < end and text[i + 1] == 32 and _SETTING[text[i + 2]])
    if text[i] == 91:
        return _read(text, i, end, _COMPLETED, out, n) > 0
    return _any_at(text, i - 8, i, _STATED)


@inlined
def _kind(text: Bytes, i: int, end: int) -> int:
    """Return kind of a line without a record, by its beginning."""
    while i < end and text[i] in (32, 9):
        i += 1
    if i == end:
        return BLANK
    if is_at(text, i, end, _TORCH_RANK) and i + 5 < end and 48 <= text[i + 5] <= 57:
        return NCCL
    if _SEVERITY[text[i]] and i + 5 < end and text[i + 5] == 32:
        return LAUNCHER if whole_number(text, i + 1, end, _SEVERITY_DIGITS)[1] == i + 5 else PLAIN
    return FX_GRAPH if _any_at(text, i, end, _GRAPH) else PLAIN


@inlined
def _file(
    text: Bytes,
    start: int,
    end: int,
    line: int,
    seen: tuple[bool, bool, bool, bool, bool, bool],
    found: Found,
) -> None:
    """Count a line without a record, or store it to be read again."""
    recorded, broken, nccl, nodes, states, last = seen
    end -= end > start and text[end - 1] == 13
    kind = _kind(text, start, end)
    if kind == PLAIN:
        kind = NCCL if nccl else FX_GRAPH if nodes else PLAIN
    if recorded:
        kind = RECORDED
    elif broken or (last and kind == PLAIN):
        kind = UNFINISHED
    if states or kind == UNFINISHED:
        others, n = found.others, found.counts[OTHERS]
        others[OTHER_LINE, n], others[FIRST, n] = line, start
        others[END, n], others[OTHER_KIND, n] = end, kind
        found.counts[OTHERS] += 1
    else:
        found.kinds[kind] += 1


@inlined
def _share(pieces: Longs, first: int, stop: int) -> None:
    """Write into the good pieces of a line whether it has more than one header or row."""
    rows = 0
    for k in range(first, stop):
        rows += pieces[KIND, k] != RECORD
    for k in range(first, stop):
        if pieces[KIND, k] != BAD:
            pieces[FATE, k] = BLOCK if rows == 1 else MERGED


@kernel
def scan(data: Bytes, line: int, offset: int, found: Found, names: Tokens) -> None:
    """Scan a block of whole lines whose first is `line`, at `offset` of the file.

    A last line without newline that has a broken record, or plain text, is of kind UNFINISHED and
    gives no pieces.
    """
    pieces, records, floats = found.pieces, found.records, found.floats
    text: Any = pointer(data)
    end = data.size
    found.counts[OTHERS] = 0
    i = start = filed = record = _ZERO
    first = piece = found.counts[PIECES]
    states = broken = nccl = nodes = False
    while i < end or start < end:
        if i < end and not _TRIGGER[text[i]]:
            i += 1
            continue
        if i == end or text[i] == 10:
            _share(pieces, first, piece)
            if broken and i == end:
                piece, filed = first, record
            if states or piece == first:
                seen = (piece > first, broken, nccl, nodes, states, i == end)
                _file(text, start, i, line, seen, found)
            line += 1
            first, record = piece, filed
            states = broken = nccl = nodes = False
            start = i + 1
            i = start + _SKIPPED * is_at(text, start, end, _ROW)
            continue
        stop = kind = fault = 0
        if text[i] == 91:
            if is_at(text, i - 5, end, _LAYER_WORD):
                stop = _layer(text, i + 1, end, pieces, piece, names, data)
                kind, fault = LAYER, BAD_LAYER
            elif is_at(text, i, end, _RANK_WORD):
                stop = _header(text, i, end, pieces, piece)
                kind, fault = HEADER, BAD_HEADER
            nodes |= is_at(text, i - 7, end, _ARGUMENTS)
        elif text[i] == 124 and is_at(text, i, end, _EPOCH_WORD):
            stop = _progress(text, i, end, records, floats, filed)
            kind, fault = RECORD, BAD_PROGRESS
            records[AT_LINE, filed] = line
            filed += stop > 0
        if stop:
            pieces[LINE, piece], pieces[START, piece] = line, offset + start
            pieces[KIND, piece] = kind if stop > 0 else BAD
            pieces[FATE, piece] = BAD_NUMBER if stop == _NO_NUMBER else fault
            broken |= stop < 0
            piece += 1
        else:
            nccl |= is_at(text, i, end, _NCCL)
            states |= _states(text, i, end, pieces, piece)
        i = max(stop, i + 1)
    found.counts[PIECES], found.counts[RECORDS] = piece, filed
