"""Read layer rows from blank-separated lines of workload plans.

A plan repeats itself: the same few lines for every layer and micro-batch. So a line is first
compared with the one that followed the last time its predecessor was seen, and copied if equal;
only a line that is new at its place is parsed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import kernel, word_at
from tracelake.kernels.numbers import Bytes, whole_number
from tracelake.kernels.tokens import Tokens, has_room, intern

Records = npt.NDArray[np.void]

FIELDS = 12
"""Fields of a layer row; more are extensions."""

MAX_FIELDS = 2 * FIELDS - 1
MAX_DIGITS = 19

ROW = np.dtype(
    [
        ("start", "i8"),  # of the line, in the block
        ("end", "i8"),  # after its newline
        ("line", "i8"),
        ("compute", "i8", 3),  # by pass: forward, input_grad, weight_grad
        ("bytes", "i8", 3),
        ("update", "i8"),
        ("row", "i4"),
        ("words", "i4", 6),  # tokens, see LAYER
    ],
    align=True,
)
LAYER, COMM, DEPENDENCY, EXTENSION = 0, 1, 4, 5
"""Slots of a row's tokens: the name, three communications by pass, the dependency (-1 if the
field is -1), and the text after the last field (-1 if there is none)."""

REJECT = np.dtype([("start", "i8"), ("end", "i8"), ("line", "i8"), ("reason", "i4")], align=True)

TOO_FEW_FIELDS, SEVERAL_ROWS, BAD_NUMBER = 0, 1, 2
POSITION, LINE, BLANKS, ROWS, REJECTS, STARVED = 0, 1, 2, 3, 4, 5  # slots of the progress
PROGRESS_SLOTS = 6

_NEWLINE, _MINUS, _ONE = 10, 45, 49
_WORD, _BLANK, _END = 0, 1, 2
_KIND = np.full(256, _WORD, np.uint8)
_KIND[[9, 11, 12, 13, 32]] = _BLANK
_KIND[_NEWLINE] = _END

_WORD_FIELDS = np.array([0, 3, 6, 9, 1, FIELDS])

_RECENT_BITS = 12
_NEVER = -2  # so that no row is expected to follow
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Buffers(NamedTuple):
    """The output of `scan_rows`; only `rows` and `rejects` are meaningful afterwards."""

    rows: Records
    rejects: Records
    spans: npt.NDArray[np.int64]
    recent: npt.NDArray[np.int32]


def new_buffers(rows: int, rejects: int) -> Buffers:
    """Allocate buffers for this many rows and rejects of one call."""
    return Buffers(
        np.zeros(rows, ROW),
        np.zeros(rejects, REJECT),
        np.zeros((FIELDS + 1, 2), np.int64),
        np.zeros(1 << _RECENT_BITS, np.int32),
    )


@kernel
def _skip(data: Bytes, start: int, kind: int) -> int:
    """Return the first position from `start` on with a byte of another kind."""
    for i in range(start, data.size):
        if _KIND[data[i]] != kind:
            return i
    return int(data.size)


@kernel
def _split(data: Bytes, pos: int, spans: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the number of fields of the line at `pos`, and its end without the newline.

    Start and end of a field go to its index in `spans`. Fields that do not fit share the last
    index, which spans from the first of them to the last.
    """
    count = 0
    i = _skip(data, pos, _BLANK)
    while i < data.size and data[i] != _NEWLINE:
        place = min(count, FIELDS)
        if place == count:
            spans[place, 0] = i
        i = _skip(data, i, _WORD)
        spans[place, 1] = i
        i = _skip(data, i, _BLANK)
        count += 1
    return count, i


@kernel
def _number(data: Bytes, start: int, end: int) -> int:
    """Return value of a field of digits; negative if it is anything else or too large for int64."""
    value, behind = whole_number(data, start, end, MAX_DIGITS)
    return value if behind == end else -1  # nineteen digits overflow once, to a negative number


@kernel
def _read_numbers(data: Bytes, spans: npt.NDArray[np.int64], row: np.record) -> bool:
    """Fill the numbers of a row; return False if one of the fields is not a number."""
    for k in range(3):
        row.compute[k] = _number(data, spans[2 + 3 * k, 0], spans[2 + 3 * k, 1])
        row.bytes[k] = _number(data, spans[4 + 3 * k, 0], spans[4 + 3 * k, 1])
        if row.compute[k] < 0 or row.bytes[k] < 0:
            return False
    row.update = _number(data, spans[11, 0], spans[11, 1])
    minus = 1 if data[spans[1, 0]] == _MINUS else 0
    return row.update >= 0 and _number(data, spans[1, 0] + minus, spans[1, 1]) >= 0


@kernel
def _read_words(
    data: Bytes, spans: npt.NDArray[np.int64], count: int, row: np.record, tokens: Tokens
) -> None:
    """Fill the tokens of a row."""
    for k in range(len(_WORD_FIELDS)):
        field = _WORD_FIELDS[k]
        start, end = spans[field, 0], spans[field, 1]
        absent = field >= count or (field == 1 and _is_minus_one(data, start, end))
        row.words[k] = -1 if absent else intern(tokens, data, start, end)


@kernel
def _is_minus_one(data: Bytes, start: int, end: int) -> bool:
    """Return whether the field says that the row depends on no other row."""
    return end - start == 2 and data[start] == _MINUS and data[start + 1] == _ONE


@kernel
def _repeats(data: Bytes, start: int, end: int, pos: int) -> bool:
    """Return whether the bytes at `pos` equal those of `data[start:end]`, an earlier line."""
    shift = pos - start
    if end + shift > data.size:
        return False
    while start + 8 <= end:
        if word_at(data, start) != word_at(data, start + shift):
            return False
        start += 8
    last = end - 8  # no row is shorter
    return word_at(data, last) == word_at(data, last + shift)


@kernel
def _recent_slot(row: np.record) -> int:
    """Return the index of a row's content in the table of recent rows."""
    code = np.uint64(row.words[LAYER])
    for k in range(3):
        code = (code + np.uint64(row.compute[k])) * _GOLDEN + np.uint64(row.bytes[k])
    return int((code * _GOLDEN) >> np.uint64(64 - _RECENT_BITS))


@kernel
def scan_rows(
    data: Bytes,
    fields: int,
    progress: npt.NDArray[np.int64],
    buffers: Buffers,
    tokens: Tokens,
) -> None:
    """Read layer rows until the block ends or an output is full.

    A row is numbered by its line: the first two lines and blank ones have no number; a rejected
    line has one, so that it does not shift other rows.

    Args:
        data: Whole lines; only the last may lack its newline.
        fields: Least number of fields of a row.
        progress: 0-based slots POSITION, LINE (number of the line there) and BLANKS (blank lines
            below the count so far) are continued; ROWS and REJECTS are set to how many were found,
            STARVED to the length of a line for whose tokens there was no space, else 0.
        buffers: Filled from their beginning.
        tokens: Table of all words of the rows.
    """
    rows, rejects, spans, recent = buffers
    recent[:] = _NEVER
    expected = -1
    pos, line, blanks = progress[POSITION], progress[LINE], progress[BLANKS]
    found = rejected = starved = 0
    while pos < data.size and found < len(rows) and rejected < len(rejects):
        row = rows[found]
        if expected >= 0 and _repeats(data, rows[expected].start, rows[expected].end, pos):
            rows[found] = rows[expected]
            row.end += pos - row.start
            following = expected + 1
        else:
            count, end = _split(data, pos, spans)
            if not has_room(tokens, end - pos):
                starved = end - pos
                break
            reason = -1
            if count < fields:
                reason = TOO_FEW_FIELDS
            elif count > MAX_FIELDS:
                reason = SEVERAL_ROWS
            elif not _read_numbers(data, spans, row):
                reason = BAD_NUMBER
            if reason >= 0:
                if count == 0:
                    blanks += 1
                else:
                    reject = rejects[rejected]
                    reject.start, reject.end, reject.line = pos, end, line
                    reject.reason = reason
                    rejected += 1
                pos = min(end + 1, data.size)
                line += 1
                continue
            _read_words(data, spans, count, row, tokens)
            row.end = min(end + 1, data.size)
            slot = _recent_slot(row)
            following = recent[slot] + 1
            recent[slot] = found
        row.start = pos
        row.line = line
        row.row = line - 2 - blanks
        expected = min(following, found)
        pos = row.end
        line += 1
        found += 1
    progress[POSITION], progress[LINE], progress[BLANKS] = pos, line, blanks
    progress[ROWS], progress[REJECTS], progress[STARVED] = found, rejected, starved
