"""Read the lines of a rank trace: `rank:N:op(fields,sub_operations=[...])` to rows."""

from __future__ import annotations

import numpy as np

from tracelake.formats.rank_trace import layout, rows
from tracelake.formats.rank_trace.fields import clear, identifier_end, read_fields
from tracelake.formats.rank_trace.layout import State
from tracelake.formats.rank_trace.quoted import closing_quote, unescape
from tracelake.kernels.compiled import inlined, kernel, typed
from tracelake.kernels.numbers import NULL, Bytes, Longs, whole_number
from tracelake.kernels.tokens import has_room, intern
from tracelake.kernels.words import is_at, word_of

MIN_SUB_OPERATION = 13
_RANK, _STAGE = word_of(b"rank:"), word_of(b"stage:")
_NO_BYTE, _BACKSLASH, _ZERO, _UNESCAPED = (typed(i) for i in (256, 92, 0, layout.UNESCAPED))


@inlined
def _rank(buf: Bytes, s: int, end: int) -> tuple[bool, int, int]:
    """Return (is a plan, rank, index after it) of `rank:N:` or `stage:N:`; index -1 for others."""
    plan = is_at(buf, s, end, _STAGE)
    if not (plan or is_at(buf, s, end, _RANK)):
        return False, 0, -1
    number, p = whole_number(buf, s + 5 + plan, end, 9)  # `rank:` has 5 bytes, `stage:` 6
    if p < 0 or p >= end or buf[p] != 58:
        return plan, 0, -1
    return plan, number, p + 1


@inlined
def _read_sub_operation(buf: Bytes, p: int, end: int, state: State) -> tuple[int, int]:
    """Read a sub-operation from its quote at p; return (problem, index of the closing quote).

    Its values are in the record of `parts`; its dimensions and attributes are added.
    """
    record, comms, words = state.parts.record, state.comms, state.words
    size = comms.size
    dimensions, attributes, value_bytes = (
        size[layout.DIMENSIONS],
        size[layout.ATTRIBUTES],
        size[layout.VALUE_BYTES],
    )
    quote = int(np.int64(buf[p]))
    if quote not in (39, 34):
        return layout.BAD_SUB_OPERATION, p
    kind = layout.SINGLE_QUOTED if quote == 39 else layout.DOUBLE_QUOTED
    problem, q = read_fields(buf, p + 1, end, quote, _BACKSLASH, kind, record, comms, words)
    if problem != 0 or q >= end:
        closing, escaped = closing_quote(buf, p + 1, end)
        if closing >= end:
            return layout.UNBALANCED, p
        if escaped:
            text = state.lines.scratch
            length = unescape(buf, p + 1, closing, text)
            if length < 0:
                return layout.BAD_SUB_OPERATION, p
            size[layout.DIMENSIONS], size[layout.ATTRIBUTES] = dimensions, attributes
            size[layout.VALUE_BYTES] = value_bytes
            problem, _ = read_fields(
                text, _ZERO, length, _NO_BYTE, _NO_BYTE, _UNESCAPED, record, comms, words
            )
            rows.forget_numbers(record)  # they refer to another text
            q = closing
    if problem == 0 and record[layout.TIMESTAMP] == NULL:
        problem = layout.MISSING_TIMESTAMP
    return problem, q


@inlined
def _read_list(buf: Bytes, p: int, end: int, op_row: int, state: State) -> int:
    """Read the elements of a list up to its bracket, which must be right before end."""
    parts, sub_seq, comms = state.parts, 0, state.comms
    while p < end and not (sub_seq == 0 and buf[p] == 93):
        sub_seq += 1
        slot, q = rows.match(buf, p, end, parts)
        if slot >= 0:
            row = parts.patterns[slot, rows.MADE_ROW]
            rows.repeat_comm(buf, row, parts.record, sub_seq, op_row, comms)
        else:
            problem, q = _read_sub_operation(buf, p, end, state)
            if problem != 0:
                return problem
            q += 1
            row = rows.add_comm(parts.record, parts.record[layout.FUNC], sub_seq, op_row, comms)
            rows.keep(p, q, row, rows.NO_ROW, False, parts)
        p = q
        if p < end and buf[p] == 93:
            break
        if p + 1 < end and buf[p] == 44 and buf[p + 1] == 32:
            p += 2
        elif p < end:
            return layout.BAD_SUB_OPERATION
    return 0 if p + 1 == end else layout.UNBALANCED


@inlined
def _read_operation(
    buf: Bytes, p: int, end: int, plan: bool, place: Longs, state: State
) -> tuple[int, int]:
    """Read an operation whose name is at p; return (kind of line, index of its list or -1)."""
    q = identifier_end(buf, p, end + 1)
    if q in (p, end + 1) or buf[q] != 40:
        return layout.NOT_A_RECORD, -1
    if buf[end] != 41:
        return layout.UNBALANCED, -1
    if plan:
        return layout.PLAN, -1
    op = intern(state.names, buf, p, q)
    ops, comms, record, words = state.ops, state.comms, state.whole.record, state.words
    clear(record)
    at = end
    if q + 1 < end:
        kind = layout.BUCKET if op == layout.DDP_GRAD_COMM else layout.OPERATION
        problem, at = read_fields(buf, q + 1, end, _NO_BYTE, _NO_BYTE, kind, record, ops, words)
        if problem != 0:
            return problem, -1
    has_list = record[layout.LIST] == 1
    if record[layout.TIMESTAMP] == NULL:
        untraced = (
            record[layout.SEEN] >> layout.DURATION_KEY & 1 and record[layout.DURATION] == NULL
        )
        empty = not has_list or (at + 1 == end and buf[at] == 93)
        return (layout.UNTRACED if untraced and empty else layout.MISSING_TIMESTAMP), -1
    rows.add_op(record, place, op, ops)
    own = rows.NO_ROW
    if rows.is_communication(buf, p, op):
        own = rows.add_own_comm(buf, p, q, op, record, ops, comms, words.texts)
    rows.keep(p, at, ops.size[layout.ROWS] - 1, own, has_list, state.whole)
    return 0, at if has_list else -1


@inlined
def _repeat_operation(buf: Bytes, p: int, end: int, place: Longs, state: State) -> int:
    """Add the operation at p if it repeats one; return its list, `end` without one, else -1."""
    slot, at = rows.match(buf, p, end, state.whole)
    if slot < 0 or buf[end] != 41:
        return -1
    pattern = state.whole.patterns[slot]
    if (at == end) == (pattern[rows.HAS_LIST] == 1):
        return -1
    record, ops = state.whole.record, state.ops
    rows.repeat_op(buf, pattern[rows.MADE_ROW], record, place, ops)
    if pattern[rows.MADE_COMM] != rows.NO_ROW:
        rows.repeat_own_comm(buf, pattern[rows.MADE_COMM], record, ops, state.comms)
    return at


@inlined
def _read_line(buf: Bytes, s: int, e: int, source: int, line: int, state: State) -> int:
    """Read the line `buf[s:e]` into rows; return its kind."""
    while e > s and buf[e - 1] in (9, 13, 32):
        e -= 1
    if e == s:
        return layout.BLANK
    plan, rank, p = _rank(buf, s, e)
    if p < 0:
        return layout.NOT_A_RECORD
    place, end = state.lines.place, e - 1
    place[0], place[1], place[2] = source, line, rank
    at = -1 if plan else _repeat_operation(buf, p, end, place, state)
    if at < 0:
        kind, at = _read_operation(buf, p, end, plan, place, state)
        if kind != 0 or at < 0:
            return kind
    elif at == end:
        return 0
    return _read_list(buf, at, end, state.ops.size[layout.ROWS] - 1, state)


@inlined
def _room_for(length: int, state: State) -> bool:
    """Return whether any line of that length fits into the remaining space."""
    return (
        bool(state.lines.n_rejects[0] < state.lines.rejects.shape[0])
        and bool(length <= state.lines.scratch.size)
        and rows.fits(state.ops, 1, length)
        and rows.fits(state.comms, length // MIN_SUB_OPERATION + 2, length)
        and has_room(state.names, length)
        and has_room(state.words.keys, length)
        and has_room(state.words.texts, length)
    )


@kernel
def read_lines(
    buf: Bytes, ends: Longs, first: int, spans: Longs, counts: Longs, state: State
) -> int:
    """Read lines from the first-th on, and add them to the counts of their spans.

    Returns:
        Index of the first line that was not read because it may not fit; all read: `ends.size`.
    """
    lines, ops, comms = state.lines, state.ops, state.comms
    rows.forget(state.whole)
    rows.forget(state.parts)
    k, s = -1, 0
    for i in range(first, ends.size):
        e = ends[i]
        span = max(k, 0)
        while span + 1 < spans.shape[0] and spans[span + 1, layout.SPAN_FIRST] <= i:  # may be empty
            span += 1
        if span > k:
            k = span
            s = ends[i - 1] + 1 if i > spans[k, layout.SPAN_FIRST] else spans[k, layout.SPAN_START]
        if not _room_for(e - s, state):
            return i
        for j in range(4):
            lines.saved[j], lines.saved[4 + j] = ops.size[j], comms.size[j]
        line = spans[k, layout.SPAN_LINE] + i - spans[k, layout.SPAN_FIRST]
        kind = _read_line(buf, s, e, spans[k, layout.SPAN_SOURCE], line, state)
        if lines.lead[layout.MARK_SEEN] == 0:
            lines.lead[layout.LEAD_BYTES] += e - s + 1
            op = min(ops.ids[layout.OP, ops.size[layout.ROWS] - 1], layout.KNOWN_OPS)
            # What only happens when the gradients of a step are complete.
            if kind == 0 and layout.TRAITS[op] & (layout.FINALIZES | layout.ENDS):
                lines.lead[layout.MARK_SEEN] = 1
        if kind != 0:
            for j in range(4):
                ops.size[j], comms.size[j] = lines.saved[j], lines.saved[4 + j]
            rows.forget(state.whole)
            rows.forget(state.parts)
        if kind > 0:
            reject = lines.rejects[lines.n_rejects[0]]
            reject[0], reject[1], reject[2], reject[3] = k, line, s, e
            reject[4] = layout.TRUNCATED_LINE if e == spans[k, layout.SPAN_STOP] else kind
            lines.n_rejects[0] += 1
        else:
            counts[k, -kind] += 1
            before = lines.saved[layout.ROWS] + lines.saved[4 + layout.ROWS]
            made = ops.size[layout.ROWS] + comms.size[layout.ROWS] - before
            counts[k, layout.COUNT_ROWS] += made
        s = e + 1
    return int(ends.size)
