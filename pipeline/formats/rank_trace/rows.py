"""Add rows of a rank trace to the columns: new ones, and those that equal an earlier one.

A layer calls the same collectives on the same tensors again and again, and a micro-batch the same
operations. So in a dense trace nearly every record is new only in its times and its micro-batch.
The last few different records of a chunk are stored as patterns: the position of their text, and of
these numbers in it. Text that equals a pattern outside the numbers has the same fields, because a
field depends only on the text of its record.
"""

from __future__ import annotations

import numpy as np

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.layout import Repeats, Rows
from tracelake.kernels.compiled import inlined, word_at
from tracelake.kernels.numbers import NULL, Bytes, Longs, copy_bytes, decimal_ns, whole_number
from tracelake.kernels.tokens import Tokens, intern
from tracelake.kernels.words import is_at, word_of

# Columns of `Repeats.patterns`: the rows that were made of it and whether a list follows; the text,
# how many numbers there are; then role, begin and end of each number in the order of the text.
MADE_ROW, MADE_COMM, HAS_LIST, _BEGIN, _END, _COUNT, _NUMBERS = range(7)
_MOST_NUMBERS = 3
NO_ROW = -1

_SEND, _RECV = word_of(b"send_"), word_of(b"recv_")


def new_repeats(patterns: int) -> Repeats:
    """Return an empty store for at most this many patterns."""
    return Repeats(
        patterns=np.zeros((patterns, _NUMBERS + 3 * _MOST_NUMBERS), np.int64),
        latest=np.zeros(1, np.int64),
        used=np.zeros(1, np.int64),
        record=np.zeros(layout.RECORD_SIZE, np.int64),
    )


@inlined
def _place_of(number: int) -> int:
    """Return the index in a record of the begin and end of a number."""
    return layout.NUMBER_AT + 2 * (number if number <= layout.TIMESTAMP else 0)


@inlined
def forget(repeats: Repeats) -> None:
    """Delete all patterns: the chunk, or the rows they made, no longer exist."""
    repeats.used[0] = 0


@inlined
def forget_numbers(record: Longs) -> None:
    """Delete the positions of the numbers of a record, so that it does not become a pattern."""
    record[_place_of(layout.DURATION)] = NULL


@inlined
def keep(begin: int, end: int, row: int, comm: int, has_list: bool, repeats: Repeats) -> None:
    """Store `buf[begin:end]`, the text of the record, and the rows it made, as a pattern.

    Args:
        comm: The communication that an operation itself is, else NO_ROW.
    """
    record = repeats.record
    if record[layout.DURATION] == NULL or record[_place_of(layout.DURATION)] == NULL:
        return
    slot = repeats.used[0] % repeats.patterns.shape[0]
    pattern = repeats.patterns[slot]
    pattern[_BEGIN], pattern[_END] = begin, end
    pattern[MADE_ROW], pattern[MADE_COMM], pattern[HAS_LIST] = row, comm, has_list
    pattern[_COUNT] = 0
    for number in (layout.DURATION, layout.TIMESTAMP, layout.BATCH):
        if record[number] != NULL:
            _keep_number(number, record, pattern)
    repeats.latest[0] = slot
    repeats.used[0] += 1


@inlined
def _keep_number(number: int, record: Longs, pattern: Longs) -> None:
    """Add a number to a pattern, in the order of the text."""
    place = _place_of(number)
    at = _NUMBERS + 3 * pattern[_COUNT]
    while at > _NUMBERS and pattern[at - 2] > record[place]:
        for i in range(3):
            pattern[at + i] = pattern[at - 3 + i]
        at -= 3
    pattern[at], pattern[at + 1], pattern[at + 2] = number, record[place], record[place + 1]
    pattern[_COUNT] += 1


@inlined
def _same(buf: Bytes, p: int, q: int, at: int, end: int) -> int:
    """Return the index after the bytes at `at` if they equal `buf[p:q]`, else -1."""
    behind = at + q - p
    if behind > end:
        return -1
    if q - p < 8:
        for i in range(q - p):
            if buf[p + i] != buf[at + i]:
                return -1
        return behind
    if word_at(buf, q - 8) != word_at(buf, behind - 8):
        return -1
    while p + 8 < q:
        if word_at(buf, p) != word_at(buf, at):
            return -1
        p, at = p + 8, at + 8
    return behind


@inlined
def _match(buf: Bytes, p: int, end: int, pattern: Longs, record: Longs) -> int:
    """Read the numbers of a record at p by a pattern; return the next index, or -1."""
    text = pattern[_BEGIN]
    record[layout.BATCH] = NULL  # not every pattern has one
    for i in range(_NUMBERS, _NUMBERS + 3 * pattern[_COUNT], 3):
        p = _same(buf, text, pattern[i + 1], p, end)
        if p < 0:
            return -1
        number = pattern[i]
        if number == layout.BATCH:
            value, q = whole_number(buf, p, end, 18)
        else:
            value, q = decimal_ns(buf, p, end)
        if q < 0:
            return -1
        place = _place_of(number)
        record[number], record[place], record[place + 1] = value, p, q
        text, p = pattern[i + 2], q
    return _same(buf, text, pattern[_END], p, end)


@inlined
def match(buf: Bytes, p: int, end: int, repeats: Repeats) -> tuple[int, int]:
    """Return (pattern that the record at p repeats, index after its text), or (-1, p).

    The numbers are then in the record.
    """
    kept = min(repeats.used[0], repeats.patterns.shape[0])
    slot = repeats.latest[0]
    for _ in range(kept):
        pattern = repeats.patterns[slot]
        q = _match(buf, p, end, pattern, repeats.record)
        if q >= 0:
            repeats.latest[0] = slot
            return slot, q
        slot = slot + 1 if slot + 1 < kept else 0
    return -1, p


@inlined
def _repeat_details(buf: Bytes, row: int, record: Longs, rows: Rows) -> None:
    """Add the dimensions and attributes of an earlier row, with the micro-batch of the record."""
    size = rows.size
    first = rows.wide[layout.SHAPE_END, row - 1] if row > 0 else 0
    for i in range(first, rows.wide[layout.SHAPE_END, row]):
        rows.shapes[size[layout.DIMENSIONS]] = rows.shapes[i]
        size[layout.DIMENSIONS] += 1
    first = rows.wide[layout.ATTRIBUTE_END, row - 1] if row > 0 else 0
    for i in range(first, rows.wide[layout.ATTRIBUTE_END, row]):
        at, end = size[layout.ATTRIBUTES], size[layout.VALUE_BYTES]
        rows.keys[at] = rows.keys[i]
        size[layout.ATTRIBUTES] += 1
        if rows.ends[i] < 0:
            rows.ends[at] = ~end
            continue
        if rows.keys[i] == layout.BATCH_KEY and record[layout.BATCH] != NULL:
            place = _place_of(layout.BATCH)
            end = copy_bytes(buf, record[place], record[place + 1], rows.values, end)
        else:
            before = rows.ends[i - 1] if i > 0 else 0
            start = ~before if before < 0 else before
            end = copy_bytes(rows.values, start, rows.ends[i], rows.values, end)
        size[layout.VALUE_BYTES] = end
        rows.ends[at] = end


@inlined
def is_communication(buf: Bytes, p: int, op: int) -> bool:
    """Return whether an operation is itself a communication: known, or any send_ or recv_."""
    if op < layout.KNOWN_OPS:
        return op <= layout.LAST_COMMUNICATION
    return is_at(buf, p, buf.size, _SEND) or is_at(buf, p, buf.size, _RECV)


@inlined
def _put_times(record: Longs, rows: Rows, n: int) -> bool:
    """Write start, end and duration; return whether they are the zeros of a placeholder."""
    end, duration = record[layout.TIMESTAMP], record[layout.DURATION]
    placeholder = bool(end == 0) and bool(duration == 0)
    rows.wide[layout.END, n] = NULL if placeholder else end
    rows.wide[layout.DURATION_NS, n] = NULL if placeholder else duration
    rows.wide[layout.START, n] = NULL if placeholder or duration == NULL else end - duration
    return placeholder


@inlined
def _put_op(record: Longs, place: Longs, stage: int, semantics: int, ops: Rows) -> int:
    """Write place, times and micro-batch of an operation; return its row."""
    n = ops.size[layout.ROWS]
    placeholder = _put_times(record, ops, n)
    for k in range(3):  # SOURCE, LINE, RANK
        ops.wide[layout.SOURCE + k, n] = place[k]
    ops.wide[layout.OP_STAGE, n], ops.wide[layout.OP_BATCH, n] = stage, record[layout.BATCH]
    ops.wide[layout.MARKS, n] = layout.PLACEHOLDER_TIMES * placeholder + semantics
    return int(n)


@inlined
def _put_comm(record: Longs, sub_seq: int, op_row: int, comms: Rows) -> int:
    """Write place and times of a communication; return its row."""
    n = comms.size[layout.ROWS]
    _put_times(record, comms, n)
    comms.wide[layout.OP_ROW, n], comms.wide[layout.SUB_SEQ, n] = op_row, sub_seq
    return int(n)


@inlined
def _close_row(elements: int, rows: Rows, n: int) -> None:
    """End row n: it has the dimensions and attributes added since the row before."""
    rows.wide[layout.ELEMENTS, n] = elements
    rows.wide[layout.SHAPE_END, n] = rows.size[layout.DIMENSIONS]
    rows.wide[layout.ATTRIBUTE_END, n] = rows.size[layout.ATTRIBUTES]
    rows.size[layout.ROWS] = n + 1


@inlined
def add_op(record: Longs, place: Longs, op: int, ops: Rows) -> None:
    """Add the row of an operation."""
    semantics = layout.METADATA_PLACEHOLDER * record[layout.SEMANTICS]
    n = _put_op(record, place, record[layout.STAGE], semantics, ops)
    ops.ids[layout.OP, n] = op
    ops.ids[layout.OP_PHASE, n] = record[layout.PHASE]
    ops.ids[layout.OP_DESCRIPTION, n] = record[layout.DESCRIPTION]
    ops.ids[layout.OP_GROUP, n] = record[layout.GROUP]
    ops.ids[layout.OP_DTYPE, n] = record[layout.DTYPE]
    _close_row(record[layout.SHAPE], ops, n)


@inlined
def add_comm(record: Longs, func: int, sub_seq: int, op_row: int, comms: Rows) -> int:
    """Add the row of a communication; return its index."""
    n = _put_comm(record, sub_seq, op_row, comms)
    comms.ids[layout.COMM_FUNC, n] = func
    comms.ids[layout.COMM_CALLER, n] = record[layout.CALLER]
    comms.ids[layout.COMM_TENSOR, n] = record[layout.TENSOR]
    comms.ids[layout.COMM_GROUP, n] = record[layout.GROUP]
    comms.ids[layout.COMM_DTYPE, n] = record[layout.DTYPE]
    _close_row(record[layout.SHAPE], comms, n)
    return n


@inlined
def repeat_op(buf: Bytes, row: int, record: Longs, place: Longs, ops: Rows) -> None:
    """Add an operation that equals that of an earlier row except for its place and its numbers."""
    semantics = ops.wide[layout.MARKS, row] & layout.METADATA_PLACEHOLDER
    n = _put_op(record, place, ops.wide[layout.OP_STAGE, row], semantics, ops)
    for i in range(layout.IDS):
        ops.ids[i, n] = ops.ids[i, row]
    _repeat_details(buf, row, record, ops)
    _close_row(ops.wide[layout.ELEMENTS, row], ops, n)


@inlined
def repeat_comm(buf: Bytes, row: int, record: Longs, sub_seq: int, op_row: int, comms: Rows) -> int:
    """Add a communication that equals that of an earlier row except for its place and times."""
    n = _put_comm(record, sub_seq, op_row, comms)
    for i in range(layout.IDS):
        comms.ids[i, n] = comms.ids[i, row]
    _repeat_details(buf, row, record, comms)
    _close_row(comms.wide[layout.ELEMENTS, row], comms, n)
    return n


@inlined
def add_own_comm(
    buf: Bytes, p: int, q: int, op: int, record: Longs, ops: Rows, comms: Rows, texts: Tokens
) -> int:
    """Add the row of an operation that is itself a communication; its name is `buf[p:q]`."""
    n = ops.size[layout.ROWS] - 1
    first = ops.wide[layout.SHAPE_END, n - 1] if n > 0 else 0
    for i in range(first, ops.size[layout.DIMENSIONS]):
        comms.shapes[comms.size[layout.DIMENSIONS]] = ops.shapes[i]
        comms.size[layout.DIMENSIONS] += 1
    if op == layout.DDP_GRAD_COMM:
        return _without_times(add_comm(record, record[layout.FUNC], NULL, n, comms), comms)
    return add_comm(record, intern(texts, buf, p, q), NULL, n, comms)


@inlined
def repeat_own_comm(buf: Bytes, row: int, record: Longs, ops: Rows, comms: Rows) -> None:
    """Add the row of the operation that was added last and is itself a communication."""
    n = ops.size[layout.ROWS] - 1
    added = repeat_comm(buf, row, record, NULL, n, comms)
    if ops.ids[layout.OP, n] == layout.DDP_GRAD_COMM:
        _without_times(added, comms)


@inlined
def _without_times(row: int, comms: Rows) -> int:
    """Remove a communication's times: they belong to the whole gradient bucket."""
    for column in (layout.START, layout.END, layout.DURATION_NS):
        comms.wide[column, row] = NULL
    return row


@inlined
def fits(rows: Rows, more_rows: int, length: int) -> bool:
    """Return whether more rows and the dimensions and attributes of `length` bytes fit."""
    size = rows.size
    return (
        bool(size[layout.ROWS] + more_rows <= rows.wide.shape[1])
        and bool(size[layout.DIMENSIONS] + length <= rows.shapes.size)
        and bool(size[layout.ATTRIBUTES] + length <= rows.keys.size)
        and bool(size[layout.VALUE_BYTES] + length <= rows.values.size)
    )
