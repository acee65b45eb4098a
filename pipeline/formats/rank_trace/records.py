"""Read records of a rank trace: `rank:N:op(fields,sub_operations=[...])` to rows."""

from __future__ import annotations

import numpy as np

from tracelake.formats.rank_trace.fields import clear, identifier_end, read_fields
from tracelake.formats.rank_trace.layout import (
    ATTRIBUTES,
    BAD_SUB_OPERATION,
    BLANK,
    BUCKET,
    DDP_GRAD_COMM,
    DIMENSIONS,
    DOUBLE_QUOTED,
    DURATION,
    DURATION_KEY,
    FUNC,
    LIST,
    MISSING_TIMESTAMP,
    NOT_A_RECORD,
    OPERATION,
    PLAN,
    ROWS,
    SEEN,
    SINGLE_QUOTED,
    TIMESTAMP,
    UNBALANCED,
    UNESCAPED,
    UNTRACED,
    VALUE_BYTES,
    Longs,
    State,
)
from tracelake.formats.rank_trace.repeats import (
    HAS_LIST,
    MADE_COMM,
    MADE_ROW,
    NO_ROW,
    forget_numbers,
    keep,
    match,
)
from tracelake.formats.rank_trace.rows import (
    add_comm,
    add_op,
    add_own_comm,
    is_communication,
    repeat_comm,
    repeat_op,
    repeat_own_comm,
)
from tracelake.kernels.compiled import inlined, typed
from tracelake.kernels.numbers import NULL, Bytes, whole_number
from tracelake.kernels.quoted import closing_quote, unescape
from tracelake.kernels.tokens import intern

MIN_SUB_OPERATION = 13
_NO_BYTE, _BACKSLASH, _ZERO, _UNESCAPED = (typed(i) for i in (256, 92, 0, UNESCAPED))


@inlined
def _rank(buf: Bytes, s: int, end: int) -> tuple[bool, int, int]:
    """Return (is a plan, rank, index after it) of `rank:N:` or `stage:N:`; index -1 for others."""
    if end - s < 6:
        return False, 0, -1
    plan = buf[s] == 115  # s
    word = b"stage:" if plan else b"rank:"
    for i in range(len(word)):
        if buf[s + i] != word[i]:
            return plan, 0, -1
    number, p = whole_number(buf, s + len(word), end, 9)
    if p < 0 or p >= end or buf[p] != 58:
        return plan, 0, -1
    return plan, number, p + 1


@inlined
def _read_sub_operation(
    buf: Bytes,
    p: int,
    end: int,
    state: State,
) -> tuple[int, int]:
    """Read a sub-operation from its quote at p; return (problem, index of the closing quote).

    Its values are in the record of `parts`; its dimensions and attributes are added.
    """
    record, comms, words = state.parts.record, state.comms, state.words
    size = comms.size
    dimensions, attributes, value_bytes = size[DIMENSIONS], size[ATTRIBUTES], size[VALUE_BYTES]
    quote = int(np.int64(buf[p]))
    if quote not in (39, 34):
        return BAD_SUB_OPERATION, p
    kind = SINGLE_QUOTED if quote == 39 else DOUBLE_QUOTED
    problem, q = read_fields(buf, p + 1, end, quote, _BACKSLASH, kind, record, comms, words)
    if problem != 0 or q >= end:
        closing, escaped = closing_quote(buf, p + 1, end)
        if closing >= end:
            return UNBALANCED, p
        if escaped:
            text = state.lines.scratch
            length = unescape(buf, p + 1, closing, text)
            if length < 0:
                return BAD_SUB_OPERATION, p
            size[DIMENSIONS], size[ATTRIBUTES] = dimensions, attributes
            size[VALUE_BYTES] = value_bytes
            problem, _ = read_fields(
                text, _ZERO, length, _NO_BYTE, _NO_BYTE, _UNESCAPED, record, comms, words
            )
            forget_numbers(record)  # they refer to another text
            q = closing
    if problem == 0 and record[TIMESTAMP] == NULL:
        problem = MISSING_TIMESTAMP
    return problem, q


@inlined
def _read_list(
    buf: Bytes,
    p: int,
    end: int,
    op_row: int,
    state: State,
) -> int:
    """Read the elements of a list up to its bracket, which must be right before end."""
    parts, sub_seq, comms = state.parts, 0, state.comms
    while p < end and not (sub_seq == 0 and buf[p] == 93):
        sub_seq += 1
        slot, q = match(buf, p, end, parts)
        if slot >= 0:
            row = parts.patterns[slot, MADE_ROW]
            repeat_comm(buf, row, parts.record, sub_seq, op_row, comms)
        else:
            problem, q = _read_sub_operation(buf, p, end, state)
            if problem != 0:
                return problem
            q += 1
            row = add_comm(parts.record, parts.record[FUNC], sub_seq, op_row, comms)
            keep(p, q, row, NO_ROW, False, parts)
        p = q
        if p < end and buf[p] == 93:
            break
        if p + 1 < end and buf[p] == 44 and buf[p + 1] == 32:
            p += 2
        elif p < end:
            return BAD_SUB_OPERATION
    return 0 if p + 1 == end else UNBALANCED


@inlined
def _read_operation(
    buf: Bytes, p: int, end: int, plan: bool, place: Longs, state: State
) -> tuple[int, int]:
    """Read an operation whose name is at p; return (kind of line, index of its list or -1)."""
    q = identifier_end(buf, p, end + 1)
    if q in (p, end + 1) or buf[q] != 40:
        return NOT_A_RECORD, -1
    if buf[end] != 41:
        return UNBALANCED, -1
    if plan:
        return PLAN, -1
    op = intern(state.names, buf, p, q)
    ops, comms, record, words = state.ops, state.comms, state.whole.record, state.words
    clear(record)
    at = end
    if q + 1 < end:
        kind = BUCKET if op == DDP_GRAD_COMM else OPERATION
        problem, at = read_fields(buf, q + 1, end, _NO_BYTE, _NO_BYTE, kind, record, ops, words)
        if problem != 0:
            return problem, -1
    has_list = record[LIST] == 1
    if record[TIMESTAMP] == NULL:
        untraced = record[SEEN] >> DURATION_KEY & 1 and record[DURATION] == NULL
        empty = not has_list or (at + 1 == end and buf[at] == 93)
        return (UNTRACED if untraced and empty else MISSING_TIMESTAMP), -1
    add_op(record, place, op, ops)
    own = NO_ROW
    if is_communication(buf, p, op):
        own = add_own_comm(buf, p, q, op, record, ops, comms, words.texts)
    keep(p, at, ops.size[ROWS] - 1, own, has_list, state.whole)
    return 0, at if has_list else -1


@inlined
def _repeat_operation(buf: Bytes, p: int, end: int, place: Longs, state: State) -> int:
    """Add the operation at p if it repeats one; return its list, `end` without one, else -1."""
    slot, at = match(buf, p, end, state.whole)
    if slot < 0 or buf[end] != 41:
        return -1
    pattern = state.whole.patterns[slot]
    if (at == end) == (pattern[HAS_LIST] == 1):
        return -1
    record, ops = state.whole.record, state.ops
    repeat_op(buf, pattern[MADE_ROW], record, place, ops)
    if pattern[MADE_COMM] != NO_ROW:
        repeat_own_comm(buf, pattern[MADE_COMM], record, ops, state.comms)
    return at


@inlined
def read_line(buf: Bytes, s: int, e: int, source: int, line: int, state: State) -> int:
    """Read the line `buf[s:e]` into rows; return its kind."""
    while e > s and buf[e - 1] in (9, 13, 32):
        e -= 1
    if e == s:
        return BLANK
    plan, rank, p = _rank(buf, s, e)
    if p < 0:
        return NOT_A_RECORD
    place, end = state.lines.place, e - 1
    place[0], place[1], place[2] = source, line, rank
    at = -1 if plan else _repeat_operation(buf, p, end, place, state)
    if at < 0:
        kind, at = _read_operation(buf, p, end, plan, place, state)
        if kind != 0 or at < 0:
            return kind
    elif at == end:
        return 0
    return _read_list(buf, at, end, state.ops.size[ROWS] - 1, state)
