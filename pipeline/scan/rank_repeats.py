"""Kernels for a sub-operation whose text is that of an earlier one but for its two times.

A layer calls the same collectives on the same tensors again and again, so that in a dense trace
nearly every sub-operation says nothing new but when it ended and how long it took. The last few
different ones of a block are kept as patterns: where their text stands, and between which bytes of
it the times. Text that equals a pattern outside the times has the same fields, because what a field
is depends on nothing but the text between the quotes.
"""

from __future__ import annotations

import numpy as np

from pipeline.scan.compiled import inlined, word_at
from pipeline.scan.lines import NULL, Bytes, decimal_ns
from pipeline.scan.rank_layout import (
    ATTRIBUTE_END,
    ATTRIBUTES,
    DIMENSIONS,
    DURATION,
    FROM,
    RECORD_SIZE,
    SHAPE_END,
    TIMESTAMP,
    TO,
    VALUE_BYTES,
    Longs,
    Repeats,
    Rows,
)

_PATTERNS = 8

# Columns of `Repeats.patterns`: the opening quote, the first time, the second, the closing quote;
# then what the times are, and the row that was made.
_OPEN, _FIRST, _FIRST_END, _SECOND, _SECOND_END, _CLOSE, _DURATION_FIRST, _ROW = range(8)


def new_repeats() -> Repeats:
    """Remembers nothing."""
    return Repeats(
        patterns=np.zeros((_PATTERNS, _ROW + 1), np.int64),
        latest=np.zeros(1, np.int64),
        used=np.zeros(1, np.int64),
        record=np.zeros(RECORD_SIZE, np.int64),
    )


@inlined
def forget_patterns(repeats: Repeats) -> None:
    """Forgets all patterns: the block, or the rows they made, are no longer there."""
    repeats.used[0] = 0


@inlined
def keep_pattern(p: int, q: int, record: Longs, row: int, repeats: Repeats) -> None:
    """Keeps the sub-operation between the quotes at p and q, from which `record` was read.

    Args:
        row: The communication that was made of it.
    """
    if record[DURATION] == NULL or record[FROM + DURATION] == NULL:
        return
    duration_first = record[FROM + DURATION] < record[FROM + TIMESTAMP]
    first, second = (DURATION, TIMESTAMP) if duration_first else (TIMESTAMP, DURATION)
    slot = repeats.used[0] % _PATTERNS
    pattern = repeats.patterns[slot]
    pattern[_OPEN], pattern[_CLOSE] = p, q
    pattern[_FIRST], pattern[_FIRST_END] = record[FROM + first], record[TO + first]
    pattern[_SECOND], pattern[_SECOND_END] = record[FROM + second], record[TO + second]
    pattern[_DURATION_FIRST], pattern[_ROW] = duration_first, row
    repeats.latest[0] = slot
    repeats.used[0] += 1


@inlined
def _same(buf: Bytes, p: int, q: int, at: int, end: int) -> int:
    """Index behind the bytes at `at` if they are those of `buf[p:q]` and end by `end`, else -1."""
    behind = at + q - p
    if behind > end:
        return -1
    while p + 8 <= q:
        if word_at(buf, p) != word_at(buf, at):
            return -1
        p, at = p + 8, at + 8
    while p < q:
        if buf[p] != buf[at]:
            return -1
        p, at = p + 1, at + 1
    return behind


@inlined
def _match(buf: Bytes, p: int, end: int, pattern: Longs, record: Longs) -> int:
    """Reads the times at p by a pattern; index of the closing quote, -1 where it does not fit."""
    q = _same(buf, pattern[_OPEN], pattern[_FIRST], p, end)
    if q < 0:
        return -1
    first, q = decimal_ns(buf, q, end)
    if q < 0:
        return -1
    q = _same(buf, pattern[_FIRST_END], pattern[_SECOND], q, end)
    if q < 0:
        return -1
    second, q = decimal_ns(buf, q, end)
    if q < 0:
        return -1
    q = _same(buf, pattern[_SECOND_END], pattern[_CLOSE] + 1, q, end)
    if pattern[_DURATION_FIRST]:
        record[DURATION], record[TIMESTAMP] = first, second
    else:
        record[DURATION], record[TIMESTAMP] = second, first
    return q - 1 if q >= 0 else -1


@inlined
def match_pattern(buf: Bytes, p: int, end: int, record: Longs, repeats: Repeats) -> tuple[int, int]:
    """(row of the pattern that the sub-operation at p repeats, its closing quote), or (-1, p).

    The record's times are those at p.
    """
    kept = min(repeats.used[0], _PATTERNS)
    for i in range(kept):
        slot = repeats.latest[0] + i
        if slot >= kept:
            slot -= kept
        q = _match(buf, p, end, repeats.patterns[slot], record)
        if q >= 0:
            repeats.latest[0] = slot
            return repeats.patterns[slot, _ROW], q
    return -1, p


@inlined
def repeat_details(row: int, rows: Rows) -> None:
    """Adds the dimensions and attributes of an earlier row once more."""
    size = rows.size
    first = rows.wide[SHAPE_END, row - 1] if row > 0 else 0
    for i in range(first, rows.wide[SHAPE_END, row]):
        rows.shapes[size[DIMENSIONS]] = rows.shapes[i]
        size[DIMENSIONS] += 1
    first = rows.wide[ATTRIBUTE_END, row - 1] if row > 0 else 0
    for i in range(first, rows.wide[ATTRIBUTE_END, row]):
        _repeat_attribute(i, rows)


@inlined
def _repeat_attribute(i: int, rows: Rows) -> None:
    at, end = rows.size[ATTRIBUTES], rows.size[VALUE_BYTES]
    rows.keys[at] = rows.keys[i]
    rows.size[ATTRIBUTES] += 1
    before = rows.ends[i - 1] if i > 0 else 0
    start = ~before if before < 0 else before
    if rows.ends[i] < 0:
        rows.ends[at] = ~end
        return
    for j in range(start, rows.ends[i]):
        rows.values[end] = rows.values[j]
        end += 1
    rows.size[VALUE_BYTES] = end
    rows.ends[at] = end
