"""Kernel for the lines of a rank trace: `rank:N:op(fields,sub_operations=[...])` to columns."""

from __future__ import annotations

import numpy as np

from pipeline.scan.compiled import inlined, kernel, typed
from pipeline.scan.lines import NULL, Bytes, whole_number
from pipeline.scan.quoted import closing_quote, unescape
from pipeline.scan.rank_fields import clear, identifier_end, read_fields
from pipeline.scan.rank_layout import (
    ATTRIBUTES,
    BAD_SUB_OPERATION,
    BLANK,
    BUCKET,
    COUNT_ROWS,
    DDP_GRAD_COMM,
    DIMENSIONS,
    DOUBLE_QUOTED,
    DURATION,
    DURATION_KEY,
    FIRST_REDUCE,
    FROM,
    FUNC,
    LAST_REDUCE,
    LEAD_BYTES,
    LIST,
    MARK_SEEN,
    MISSING_TIMESTAMP,
    NOT_A_RECORD,
    OP,
    OPERATION,
    OPTIMIZER_STEP,
    PLAN,
    REJECT_END,
    REJECT_LINE,
    REJECT_PROBLEM,
    REJECT_SPAN,
    REJECT_START,
    ROWS,
    SEEN,
    SINGLE_QUOTED,
    SPAN_FIRST,
    SPAN_LINE,
    SPAN_SOURCE,
    SPAN_START,
    SPAN_STOP,
    TIMESTAMP,
    TRUNCATED_LINE,
    UNBALANCED,
    UNESCAPED,
    UNTRACED,
    VALUE_BYTES,
    Longs,
    State,
)
from pipeline.scan.rank_repeats import forget_patterns, keep_pattern, match_pattern
from pipeline.scan.rank_rows import (
    add_comm,
    add_op,
    add_own_comm,
    fits,
    is_communication,
    repeat_comm,
)
from pipeline.scan.tokens import has_room, intern

MIN_SUB_OPERATION = 13
_NO_BYTE, _BACKSLASH, _ZERO, _UNESCAPED = (typed(i) for i in (256, 92, 0, UNESCAPED))


@inlined
def _header(buf: Bytes, s: int, end: int) -> tuple[bool, int, int, int]:
    """(is a plan, rank, start of the name, end of it) of `rank:N:name(`; end -1 for others."""
    if end - s < 6:
        return False, 0, 0, -1
    plan = buf[s] == 115  # s
    word = b"stage:" if plan else b"rank:"
    for i in range(len(word)):
        if buf[s + i] != word[i]:
            return plan, 0, 0, -1
    number, p = whole_number(buf, s + len(word), end, 9)
    if p < 0 or p >= end or buf[p] != 58:
        return plan, 0, 0, -1
    q = identifier_end(buf, p + 1, end)
    if q == p + 1 or q >= end or buf[q] != 40:
        return plan, 0, 0, -1
    return plan, number, p + 1, q


@inlined
def _read_sub_operation(
    buf: Bytes,
    p: int,
    end: int,
    state: State,
) -> tuple[int, int]:
    """(problem, index of the closing quote) of the sub-operation whose opening quote is at p.

    It is left in the record of `Repeats`; its dimensions and attributes are added.
    """
    record, comms = state.repeats.record, state.comms
    size = comms.size
    dimensions, attributes, value_bytes = size[DIMENSIONS], size[ATTRIBUTES], size[VALUE_BYTES]
    quote = int(np.int64(buf[p]))
    if quote not in (39, 34):
        return BAD_SUB_OPERATION, p
    kind = SINGLE_QUOTED if quote == 39 else DOUBLE_QUOTED
    problem, q = read_fields(buf, p + 1, end, quote, _BACKSLASH, kind, record, comms, state)
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
                text, _ZERO, length, _NO_BYTE, _NO_BYTE, _UNESCAPED, record, comms, state
            )
            record[FROM + DURATION] = NULL  # the times stand in another text
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
    """Reads the elements of a list up to its bracket, which must stand right before end."""
    record, sub_seq, comms = state.repeats.record, 0, state.comms
    while p < end and not (sub_seq == 0 and buf[p] == 93):
        sub_seq += 1
        row, q = match_pattern(buf, p, end, record, state.repeats)
        if row >= 0:
            repeat_comm(row, record, sub_seq, op_row, comms)
        else:
            problem, q = _read_sub_operation(buf, p, end, state)
            if problem != 0:
                return problem
            row = add_comm(record, record[FUNC], sub_seq, op_row, comms)
            keep_pattern(p, q, record, row, state.repeats)
        p = q + 1
        if p < end and buf[p] == 93:
            break
        if p + 1 < end and buf[p] == 44 and buf[p + 1] == 32:
            p += 2
        elif p < end:
            return BAD_SUB_OPERATION
    return 0 if p + 1 == end else UNBALANCED


@inlined
def _read_line(  # noqa: PLR0911 -- a line is settled as soon as it is known
    buf: Bytes,
    s: int,
    e: int,
    source: int,
    line: int,
    state: State,
) -> int:
    """Reads the line `buf[s:e]` into rows; says what it is."""
    while e > s and buf[e - 1] in (9, 13, 32):
        e -= 1
    if e == s:
        return BLANK
    plan, rank, p, q = _header(buf, s, e)
    if q < 0:
        return NOT_A_RECORD
    if buf[e - 1] != 41:
        return UNBALANCED
    if plan:
        return PLAN
    op = intern(state.names, buf, p, q)
    ops, record, end = state.ops, state.lines.record, e - 1
    clear(record)
    at = end
    if q + 1 < end:
        kind = BUCKET if op == DDP_GRAD_COMM else OPERATION
        problem, at = read_fields(buf, q + 1, end, _NO_BYTE, _NO_BYTE, kind, record, ops, state)
        if problem != 0:
            return problem
    has_list = record[LIST] == 1
    if record[TIMESTAMP] == NULL:
        untraced = record[SEEN] >> DURATION_KEY & 1 and record[DURATION] == NULL
        empty = not has_list or (at + 1 == end and buf[at] == 93)
        return UNTRACED if untraced and empty else MISSING_TIMESTAMP
    add_op(record, source, line, rank, op, ops)
    if is_communication(buf, p, op):
        add_own_comm(buf, p, q, op, state)
    if has_list:
        return _read_list(buf, at, end, ops.size[ROWS] - 1, state)
    return 0


@inlined
def _ends_step(op: int) -> bool:
    """Whether an operation only comes when the gradients of a step are complete."""
    return bool(op == OPTIMIZER_STEP) or bool(FIRST_REDUCE <= op <= LAST_REDUCE)


@inlined
def room_for(
    length: int,
    state: State,
) -> bool:
    """Whether any line of that length fits into what is left."""
    return (
        bool(state.lines.n_rejects[0] < state.lines.rejects.shape[0])
        and bool(length <= state.lines.scratch.size)
        and fits(state.ops, 1, length)
        and fits(state.comms, length // MIN_SUB_OPERATION + 2, length)
        and has_room(state.names, length)
        and has_room(state.keys, length)
        and has_room(state.text, length)
    )


@kernel
def read_lines(
    buf: Bytes, ends: Longs, first: int, spans: Longs, counts: Longs, state: State
) -> int:
    """Reads lines from the first-th on, and adds them to the accounts of their spans.

    Returns:
        Index of the first line that was not read because it may not fit; all read: `ends.size`.
    """
    lines, ops, comms = state.lines, state.ops, state.comms
    forget_patterns(state.repeats)
    k, s = -1, 0
    for i in range(first, ends.size):
        e = ends[i]
        if k < 0 or (k + 1 < spans.shape[0] and spans[k + 1, SPAN_FIRST] <= i):
            k = _span_of(i, k, spans)
            s = ends[i - 1] + 1 if i > spans[k, SPAN_FIRST] else spans[k, SPAN_START]
        if not room_for(e - s, state):
            return i
        for j in range(4):
            lines.saved[j], lines.saved[4 + j] = ops.size[j], comms.size[j]
        line = spans[k, SPAN_LINE] + i - spans[k, SPAN_FIRST]
        kind = _read_line(buf, s, e, spans[k, SPAN_SOURCE], line, state)
        if lines.lead[MARK_SEEN] == 0:
            lines.lead[LEAD_BYTES] += e - s + 1
            if kind == 0 and _ends_step(ops.ids[OP, ops.size[ROWS] - 1]):
                lines.lead[MARK_SEEN] = 1
        if kind != 0:
            for j in range(4):
                ops.size[j], comms.size[j] = lines.saved[j], lines.saved[4 + j]
            forget_patterns(state.repeats)
        if kind > 0:
            n = lines.n_rejects[0]
            lines.rejects[n, REJECT_SPAN] = k
            lines.rejects[n, REJECT_LINE] = line
            lines.rejects[n, REJECT_START] = s
            lines.rejects[n, REJECT_END] = e
            lines.rejects[n, REJECT_PROBLEM] = TRUNCATED_LINE if e == spans[k, SPAN_STOP] else kind
            lines.n_rejects[0] = n + 1
        else:
            counts[k, -kind] += 1
            rows = ops.size[ROWS] + comms.size[ROWS]
            counts[k, COUNT_ROWS] += rows - lines.saved[ROWS] - lines.saved[4 + ROWS]
        s = e + 1
    return int(ends.size)


@inlined
def _span_of(i: int, k: int, spans: Longs) -> int:
    """The span from the k-th on that holds line i; one without lines begins where the next does."""
    k = max(k, 0)
    while k + 1 < spans.shape[0] and spans[k + 1, SPAN_FIRST] <= i:
        k += 1
    return int(k)
