"""Read events in raw bytes: add kernels and copies to rows, and pass over what needs no row.

The kernel takes only what it understands to the last byte. It stops before an event that is not
whole, is no plain JSON, or means more than a row; `document` decodes that one by itself.
"""

# ruff: noqa: PLR0911, PLR0912, SIM110 -- plain loops; a kernel returns when it knows
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import (
    equal_at,
    inlined,
    kernel,
    leading_zeros,
    trailing_zeros,
    word_at,
)
from tracelake.kernels.numbers import Bytes, Longs, digits_end, whole_number
from tracelake.kernels.tokens import Tokens, has_room, intern

ROWS = 1 << 16
"""Rows that a part has space for."""

SPARE = 128
"""Bytes that the data must have after its end, because kernels look at many bytes at once."""

# Columns of a place: the line that is being read, where it begins, the highest level of its pieces,
# and from COUNTS on the lines of each level.
LINE, LINE_OFFSET, LEVEL, COUNTS = range(4)
STRUCTURE, UNREAD, EVENT, CONTEXT, ROW, REJECT = LEVELS = range(6)
"""Kinds of pieces of text; of the pieces on one line the highest decides."""

# Kinds of rows: passes are annotations of a pipeline on the device.
COPY, KERNEL, PASS = range(3)

# Rows of `Rows.wide`.
AT_LINE, START, END, STREAM = range(4)

# The keys of an event that count, by the row of its spans.
_PH, _CAT, _NAME, _TS, _DUR, _PID, _TID, _ARGS, KEYS = range(9)

_MOST = 2**63 - 1
_LARGEST_US = 4 * 10**15  # a time in ns and the sum of two such times fit int64
_WHOLE_DIGITS, _FRACTION_DIGITS = 16, 3
_ID_DIGITS = 18
_NUMBER_DIGITS = 4000
_DEPTH = 60


def _bytes(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


_W_KEYS = np.array(
    [
        int.from_bytes(f'"{key}"'.rjust(8, "\0").encode(), "little")
        for key in ("ph", "cat", "name", "ts", "dur", "pid", "tid", "args")
    ],
    np.uint64,
)
_LONGEST_KEY = 6  # with its quotes
_W_STREAM, _W_X = _bytes('"stream"'), _bytes('"X"')
_W_KERNEL, _W_OLD_KERNEL = _bytes('"kernel"'), _bytes('"Kernel"')
_W_MEMCPY, _W_MEMSET = _bytes('"gpu_memcpy"'), _bytes('"gpu_memset"')
_W_OLD_MEMCPY, _W_OLD_MEMSET = _bytes('"Memcpy"'), _bytes('"Memset"')
_W_CPU_OP, _W_CALL = _bytes('"cpu_op"'), _bytes('"record_param_comms"')
_W_OPERATOR = _bytes('"Operator"')
_W_NOTE, _W_GPU_NOTE = _bytes('"user_annotation"'), _bytes('"gpu_user_annotation"')
_W_STEP = _bytes('"profilerstep#')
_W_FORWARD, _W_BACKWARD, _W_PP = _bytes('"forward '), _bytes('"backward '), _bytes('"pp:')
_W_TRUE, _W_FALSE, _W_NULL = _bytes("true"), _bytes("false"), _bytes("null")
_W_NAN, _W_INFINITY = _bytes("NaN"), _bytes("Infinity")
_W_NCCL, _W_RCCL, _W_MSCCL = _bytes("nccl"), _bytes("rccl"), _bytes("msccl")


class Rows(NamedTuple):
    """Rows of kernels and copies.

    Attributes:
        wide: int64, (AT_LINE, START, END or STREAM; row). The stream is -1 if there is none.
        names: int32, by row: 4 times the token of the name, and its kind.
        size: int64, the number of rows.
        devices: int64, the least and the greatest device, which is the process of a kernel's event.
    """

    wide: Longs
    names: npt.NDArray[np.int32]
    size: Longs
    devices: Longs


class Notes(NamedTuple):
    """Events of which more is to be decoded than the kernel reads.

    Attributes:
        at: int64, (note; begin, end, number of the row or -1).
        size: int64, the number of notes.
    """

    at: Longs
    size: Longs


def new_rows() -> Rows:
    """Return a part without rows."""
    return Rows(
        np.empty((4, ROWS), np.int64),
        np.empty(ROWS, np.int32),
        np.zeros(1, np.int64),
        np.array([_MOST, -1]),
    )


def new_place() -> Longs:
    """Return the beginning of a document."""
    place = np.zeros(COUNTS + len(LEVELS), np.int64)
    place[LINE] = 1
    return place


@inlined
def _blanks(buf: Bytes, p: int, end: int) -> int:
    """Return the index after blanks."""
    while p < end and buf[p] <= 32:
        if not (buf[p] == 32 or buf[p] == 10 or buf[p] == 13 or buf[p] == 9):
            break
        p += 1
    return p


@inlined
def _is(buf: Bytes, p: int, q: int, word: Bytes) -> bool:
    """Return whether a span has exactly these bytes."""
    if q - p != word.size:
        return False
    for i in range(word.size):
        if buf[p + i] != word[i]:
            return False
    return True


@inlined
def _begins(buf: Bytes, p: int, q: int, word: Bytes) -> bool:
    """Return whether a span begins with a word, in small or capital letters."""
    if q - p < word.size:
        return False
    for i in range(word.size):
        if (buf[p + i] | 32) != word[i]:
            return False
    return True


@inlined
def _hex(c: int) -> bool:
    return bool(48 <= c <= 57) or bool(97 <= (c | 32) <= 102)


@kernel
def _string_end(buf: Bytes, p: int, end: int) -> tuple[int, bool]:
    """Return the index after the string at p, and whether it has escapes; -1 if it is none."""
    if p >= end or buf[p] != 34:
        return -1, False
    q, escaped = p + 1, False
    while q < end:
        found = equal_at(buf, q, 34) | equal_at(buf, q, 92)
        if found == 0:
            q += 64
            continue
        q += trailing_zeros(found)
        if q >= end:
            break
        if buf[q] == 34:
            return q + 1, escaped
        escaped = True
        c = buf[q + 1]
        if c == 117:
            for i in range(4):
                if not _hex(buf[q + 2 + i]):
                    return -1, False
            q += 6
        elif c in (34, 92, 47, 98, 102, 110, 114, 116):
            q += 2
        else:
            return -1, False
    return -1, False


@inlined
def _word_end(buf: Bytes, p: int, end: int, word: Bytes) -> int:
    """Return the index after a word; -1 if something else is at p."""
    return int(p + word.size) if _is(buf, p, min(p + word.size, end), word) else -1


@kernel
def _scalar_end(buf: Bytes, p: int, end: int) -> int:
    """Return the index after the number or the word at p; -1 if there is none."""
    c = buf[p]
    if c == 116:
        return _word_end(buf, p, end, _W_TRUE)
    if c == 102:
        return _word_end(buf, p, end, _W_FALSE)
    if c == 110:
        return _word_end(buf, p, end, _W_NULL)
    if c == 78:
        return _word_end(buf, p, end, _W_NAN)
    q = p + (c == 45)
    if buf[q] == 73:
        return _word_end(buf, q, end, _W_INFINITY)
    begin = q
    q = digits_end(buf, q, end)
    if q == begin or (buf[begin] == 48 and q - begin > 1):
        return -1
    if buf[q] == 46:
        begin = q + 1
        q = digits_end(buf, begin, end)
        if q == begin:
            return -1
    if (buf[q] | 32) == 101:
        begin = q + 1
        begin += buf[begin] == 43 or buf[begin] == 45
        q = digits_end(buf, begin, end)
        if q == begin:
            return -1
    return q if q - p < _NUMBER_DIGITS else -1


@inlined
def _after_colon(buf: Bytes, p: int, end: int) -> int:
    """Return where the value begins after the colon that follows; -1 without a colon."""
    p = _blanks(buf, p, end)
    if p >= end or buf[p] != 58:
        return -1
    return int(_blanks(buf, p + 1, end))


@kernel
def _value_end(buf: Bytes, p: int, end: int) -> int:
    """Return the index after the value at p; -1 if it is not whole, no JSON, or very deep."""
    depth, kinds = 0, np.uint64(0)  # the lowest bit says that the innermost is an object
    while True:
        if p >= end:
            return -1
        c = buf[p]
        opened = False
        if c == 34:
            p, _ = _string_end(buf, p, end)
        elif c in (123, 91):
            if depth == _DEPTH:
                return -1
            depth += 1
            kinds = (kinds << np.uint64(1)) | np.uint64(c == 123)
            p = _blanks(buf, p + 1, end)
            # 125 and 93 close what 123 and 91 open.
            opened = p >= end or buf[p] != c + 2
        else:
            p = _scalar_end(buf, p, end)
        if p < 0:
            return -1
        while not opened:
            if depth == 0:
                return p
            p = _blanks(buf, p, end)
            if p >= end:
                return -1
            c = buf[p]
            p += 1
            if c == 44:
                p = _blanks(buf, p, end)
                opened = True
            elif c == (125 if kinds & np.uint64(1) else 93):
                depth -= 1
                kinds >>= np.uint64(1)
            else:
                return -1
        if kinds & np.uint64(1):
            p, _ = _string_end(buf, p, end)
            if p < 0:
                return -1
            p = _after_colon(buf, p, end)
            if p < 0:
                return -1


@inlined
def _key_of(buf: Bytes, p: int, q: int) -> int:
    """Return which key of an event a string is; -1 for others."""
    if q - p > _LONGEST_KEY:
        return -1
    word = word_at(buf, p) << np.uint64(8 * (8 - (q - p)))
    for key in range(KEYS):
        if word == _W_KEYS[key]:
            return key
    return -1


@kernel
def _member_end(buf: Bytes, p: int, end: int) -> tuple[int, int, int]:
    """Return the end of the key at p, and begin and end of its value; -1 if one is not plain."""
    q, escaped = _string_end(buf, p, end)
    if q < 0 or escaped:
        return -1, -1, -1
    value = _after_colon(buf, q, end)
    if value < 0:
        return -1, -1, -1
    return q, value, _value_end(buf, value, end)


@inlined
def _next_member(buf: Bytes, p: int, end: int) -> int:
    """Return where the next key begins, or the complement of the index after the object."""
    p = _blanks(buf, p, end)
    if p < end and buf[p] == 125:
        return int(~(p + 1))
    if p < end and buf[p] == 44:
        return int(_blanks(buf, p + 1, end))
    return int(end)  # there is no key


@kernel
def _event_end(buf: Bytes, p: int, end: int, spans: Longs) -> int:
    """Return the index after the event at p, and keep the spans of the values that count."""
    for key in range(KEYS):
        spans[key, 0] = spans[key, 1] = 0
    p = _blanks(buf, p + 1, end)
    if p < end and buf[p] == 125:
        return p + 1
    while p >= 0:
        q, value, stop = _member_end(buf, p, end)
        if stop < 0:
            return -1
        key = _key_of(buf, p, q)
        if key >= 0:
            spans[key, 0], spans[key, 1] = value, stop
        p = _next_member(buf, stop, end)
    return ~p


@kernel
def _stream_of(buf: Bytes, p: int, end: int, spans: Longs) -> int:
    """Return the stream among the arguments, else the thread; -1 if that is not plain."""
    begin, stop = spans[_TID, 0], spans[_TID, 1]
    if p < end:
        if buf[p] != 123:
            return -1
        p = _blanks(buf, p + 1, end)
        while 0 <= p < end and buf[p] != 125:
            q, value, after = _member_end(buf, p, end)
            if after < 0:
                return -1
            if _is(buf, p, q, _W_STREAM):
                begin, stop = value, after
            p = _next_member(buf, after, end)
    return _whole(buf, begin, stop)


@inlined
def _plain(buf: Bytes, p: int, q: int) -> bool:
    """Return whether the string of a span has no escapes."""
    for i in range(p, q):
        if buf[i] == 92:
            return False
    return True


@inlined
def _nanoseconds(buf: Bytes, p: int, q: int) -> int:
    """Return a number of microseconds as exact nanoseconds; -1 if it is not plain or too large."""
    value, i = whole_number(buf, p, q, _WHOLE_DIGITS)
    if i < 0 or value > _LARGEST_US:
        return -1
    digits = 0
    if i < q and buf[i] == 46:
        i += 1
        while i < q and 48 <= buf[i] <= 57 and digits < _FRACTION_DIGITS:
            value = value * 10 + (buf[i] - 48)
            i += 1
            digits += 1
    if i < q:
        return -1
    while digits < _FRACTION_DIGITS:
        value *= 10
        digits += 1
    return value


@inlined
def _whole(buf: Bytes, p: int, q: int) -> int:
    """Return a whole number; -1 if it is none, or has too many digits."""
    value, behind = whole_number(buf, p, q, _ID_DIGITS)
    return value if behind == q else -1


@inlined
def _is_communication(buf: Bytes, p: int, q: int) -> bool:
    return (
        _begins(buf, p, q, _W_NCCL) or _begins(buf, p, q, _W_RCCL) or _begins(buf, p, q, _W_MSCCL)
    )


@inlined
def _is_copy(buf: Bytes, cat: int, cat_end: int) -> bool:
    """Return whether a category is one of copies and fills of memory."""
    return (
        _is(buf, cat, cat_end, _W_MEMCPY)
        or _is(buf, cat, cat_end, _W_MEMSET)
        or _is(buf, cat, cat_end, _W_OLD_MEMCPY)
        or _is(buf, cat, cat_end, _W_OLD_MEMSET)
    )


@inlined
def _is_step(buf: Bytes, cat: int, cat_end: int, name: int, name_end: int) -> bool:
    """Return whether an event is an annotation that says where a step or a pass is."""
    if not (_is(buf, cat, cat_end, _W_NOTE) or _is(buf, cat, cat_end, _W_GPU_NOTE)):
        return False
    return (
        not _plain(buf, name, name_end)
        or _begins(buf, name, name_end, _W_STEP)
        or _begins(buf, name, name_end, _W_FORWARD)
        or _begins(buf, name, name_end, _W_BACKWARD)
        or _begins(buf, name, name_end, _W_PP)
    )


@kernel
def _level_of(buf: Bytes, spans: Longs, place: Longs, rows: Rows, tokens: Tokens) -> int:
    """Return what an event is; a kernel or copy is written behind the last row.

    Returns:
        A level, or -1 where the event has to be decoded.
    """
    cat, cat_end = spans[_CAT, 0], spans[_CAT, 1]
    name, name_end = spans[_NAME, 0], spans[_NAME, 1]
    if not (_plain(buf, spans[_PH, 0], spans[_PH, 1]) and _plain(buf, cat, cat_end)):
        return -1
    if not _is(buf, spans[_PH, 0], spans[_PH, 1], _W_X):
        return EVENT
    is_kernel = _is(buf, cat, cat_end, _W_KERNEL) or _is(buf, cat, cat_end, _W_OLD_KERNEL)
    if not (is_kernel or _is_copy(buf, cat, cat_end)):
        if _is(buf, cat, cat_end, _W_CPU_OP) or _is(buf, cat, cat_end, _W_OPERATOR):
            if not _plain(buf, name, name_end) or _begins(buf, name, name_end, _W_STEP):
                return -1
            return CONTEXT if _is(buf, name, name_end, _W_CALL) else EVENT
        return -1 if _is_step(buf, cat, cat_end, name, name_end) else EVENT
    if name_end - name < 3 or buf[name] != 34 or not _plain(buf, name, name_end):
        return -1
    name, name_end = name + 1, name_end - 1
    start = _nanoseconds(buf, spans[_TS, 0], spans[_TS, 1])
    length = _nanoseconds(buf, spans[_DUR, 0], spans[_DUR, 1])
    stream = _stream_of(buf, spans[_ARGS, 0], spans[_ARGS, 1], spans)
    if start < 0 or length < 0 or stream < 0 or not has_room(tokens, name_end - name):
        return -1
    n = rows.size[0]
    rows.wide[AT_LINE, n], rows.wide[STREAM, n] = place[LINE], stream
    rows.wide[START, n], rows.wide[END, n] = start, start + length
    rows.names[n] = 4 * intern(tokens, buf, name, name_end) + (KERNEL if is_kernel else COPY)
    device = _whole(buf, spans[_PID, 0], spans[_PID, 1])
    if is_kernel and device >= 0:
        rows.devices[0] = min(rows.devices[0], device)
        rows.devices[1] = max(rows.devices[1], device)
    return ROW


@inlined
def _note(buf: Bytes, p: int, q: int, spans: Longs, level: int, rows: Rows, notes: Notes) -> None:
    """Note a call of a communication, or the kernel of one, which is the last row."""
    row, name = rows.size[0] - 1, spans[_NAME, 0] + 1
    is_row = level == ROW
    if is_row and not (
        rows.names[row] % 4 == KERNEL and _is_communication(buf, name, spans[_NAME, 1] - 1)
    ):
        return
    n = notes.size[0]
    notes.at[n, 0], notes.at[n, 1], notes.at[n, 2] = p, q, row if is_row else -1
    notes.size[0] = n + 1


@kernel
def _move(buf: Bytes, p: int, q: int, base: int, level: int, place: Longs) -> bool:
    """Count the lines of a piece of text of a level; return False where that ends a reject."""
    lines, last, at = 0, p, p
    while at < q:
        found = equal_at(buf, at, 10)
        if q - at < 64:
            found &= (np.uint64(1) << np.uint64(q - at)) - np.uint64(1)
        if found != 0:
            last = at + 63 - leading_zeros(found)
        while found != 0:
            lines += 1
            found &= found - np.uint64(1)
        at += 64
    if lines == 0:
        place[LEVEL] = max(place[LEVEL], level)
        return True
    if place[LEVEL] == REJECT:
        return False
    place[COUNTS + max(place[LEVEL], level)] += 1
    place[COUNTS + level] += lines - 1
    place[LINE] += lines
    place[LINE_OFFSET] = base + last + 1
    place[LEVEL] = STRUCTURE if last == q - 1 else level
    return True


@kernel
def read_events(
    buf: Bytes,
    p: int,
    end: int,
    base: int,
    place: Longs,
    spans: Longs,
    rows: Rows,
    notes: Notes,
    tokens: Tokens,
) -> int:
    """Read events from p on, as long as they are plain and there is space.

    Args:
        end: End of the text in the buffer; SPARE bytes or more follow.
        base: Offset of the buffer in the file.

    Returns:
        Where it stopped, between events.
    """
    while rows.size[0] < rows.names.size and notes.size[0] < notes.at.shape[0]:
        q = p
        while q < end and (buf[q] == 44 or _blanks(buf, q, end) > q):
            q += 1
        if not _move(buf, p, q, base, STRUCTURE, place):
            return p
        p = q
        if p >= end or buf[p] != 123:
            return p
        q = _event_end(buf, p, end, spans)
        if q < 0:
            return p
        level = _level_of(buf, spans, place, rows, tokens)
        if level < 0 or not _move(buf, p, q, base, level, place):
            return p
        rows.size[0] += level == ROW
        if level >= CONTEXT:
            _note(buf, p, q, spans, level, rows, notes)
        p = q
    return p
