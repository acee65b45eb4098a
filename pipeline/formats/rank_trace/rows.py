"""Add rows of a rank trace to the columns."""

from __future__ import annotations

from tracelake.formats.rank_trace.layout import (
    ATTRIBUTE_END,
    ATTRIBUTES,
    BATCH,
    CALLER,
    COMM_CALLER,
    COMM_DTYPE,
    COMM_FUNC,
    COMM_GROUP,
    COMM_TENSOR,
    DDP_GRAD_COMM,
    DESCRIPTION,
    DIMENSIONS,
    DTYPE,
    DURATION,
    DURATION_NS,
    ELEMENTS,
    END,
    FUNC,
    GROUP,
    IDS,
    KNOWN_OPS,
    LAST_COMMUNICATION,
    LINE,
    MARKS,
    METADATA_PLACEHOLDER,
    OP,
    OP_BATCH,
    OP_DESCRIPTION,
    OP_DTYPE,
    OP_GROUP,
    OP_PHASE,
    OP_ROW,
    OP_STAGE,
    PHASE,
    PLACEHOLDER_TIMES,
    RANK,
    ROWS,
    SEMANTICS,
    SHAPE,
    SHAPE_END,
    SOURCE,
    STAGE,
    START,
    SUB_SEQ,
    TENSOR,
    TIMESTAMP,
    VALUE_BYTES,
    Longs,
    Rows,
)
from tracelake.formats.rank_trace.repeats import repeat_details
from tracelake.kernels.compiled import inlined
from tracelake.kernels.numbers import NULL, Bytes
from tracelake.kernels.tokens import Tokens, intern


@inlined
def is_communication(buf: Bytes, p: int, op: int) -> bool:
    """Return whether an operation is itself a communication: known, or any send_ or recv_."""
    if op < KNOWN_OPS:
        return op <= LAST_COMMUNICATION
    send = buf[p] == 115 and buf[p + 1] == 101 and buf[p + 2] == 110 and buf[p + 3] == 100
    recv = buf[p] == 114 and buf[p + 1] == 101 and buf[p + 2] == 99 and buf[p + 3] == 118
    return bool(send or recv) and bool(buf[p + 4] == 95)


@inlined
def _put_times(record: Longs, rows: Rows, n: int) -> bool:
    """Write start, end and duration; return whether they are the zeros of a placeholder."""
    end, duration = record[TIMESTAMP], record[DURATION]
    placeholder = bool(end == 0) and bool(duration == 0)
    rows.wide[END, n] = NULL if placeholder else end
    rows.wide[DURATION_NS, n] = NULL if placeholder else duration
    rows.wide[START, n] = NULL if placeholder or duration == NULL else end - duration
    return placeholder


@inlined
def _put_place(place: Longs, ops: Rows, n: int) -> None:
    ops.wide[SOURCE, n], ops.wide[LINE, n], ops.wide[RANK, n] = place[0], place[1], place[2]


@inlined
def _close_row(elements: int, rows: Rows, n: int) -> None:
    """End row n: it has the dimensions and attributes added since the row before."""
    rows.wide[ELEMENTS, n] = elements
    rows.wide[SHAPE_END, n] = rows.size[DIMENSIONS]
    rows.wide[ATTRIBUTE_END, n] = rows.size[ATTRIBUTES]
    rows.size[ROWS] = n + 1


@inlined
def add_op(record: Longs, place: Longs, op: int, ops: Rows) -> None:
    """Add the row of an operation."""
    n = ops.size[ROWS]
    placeholder = _put_times(record, ops, n)
    _put_place(place, ops, n)
    ops.wide[OP_STAGE, n] = record[STAGE]
    ops.wide[OP_BATCH, n] = record[BATCH]
    ops.wide[MARKS, n] = PLACEHOLDER_TIMES * placeholder + METADATA_PLACEHOLDER * record[SEMANTICS]
    ops.ids[OP, n] = op
    ops.ids[OP_PHASE, n] = record[PHASE]
    ops.ids[OP_DESCRIPTION, n] = record[DESCRIPTION]
    ops.ids[OP_GROUP, n] = record[GROUP]
    ops.ids[OP_DTYPE, n] = record[DTYPE]
    _close_row(record[SHAPE], ops, n)


@inlined
def add_comm(record: Longs, func: int, sub_seq: int, op_row: int, comms: Rows) -> int:
    """Add the row of a communication; return its index."""
    n = comms.size[ROWS]
    _put_times(record, comms, n)
    comms.wide[OP_ROW, n] = op_row
    comms.wide[SUB_SEQ, n] = sub_seq
    comms.ids[COMM_FUNC, n] = func
    comms.ids[COMM_CALLER, n] = record[CALLER]
    comms.ids[COMM_TENSOR, n] = record[TENSOR]
    comms.ids[COMM_GROUP, n] = record[GROUP]
    comms.ids[COMM_DTYPE, n] = record[DTYPE]
    _close_row(record[SHAPE], comms, n)
    return int(n)


@inlined
def repeat_op(buf: Bytes, row: int, record: Longs, place: Longs, ops: Rows) -> None:
    """Add an operation that equals that of an earlier row except for its place and its numbers."""
    n = ops.size[ROWS]
    placeholder = _put_times(record, ops, n)
    _put_place(place, ops, n)
    ops.wide[OP_STAGE, n] = ops.wide[OP_STAGE, row]
    ops.wide[OP_BATCH, n] = record[BATCH]
    semantics = ops.wide[MARKS, row] & METADATA_PLACEHOLDER
    ops.wide[MARKS, n] = PLACEHOLDER_TIMES * placeholder + semantics
    for i in range(IDS):
        ops.ids[i, n] = ops.ids[i, row]
    repeat_details(buf, row, record, ops)
    _close_row(ops.wide[ELEMENTS, row], ops, n)


@inlined
def repeat_comm(buf: Bytes, row: int, record: Longs, sub_seq: int, op_row: int, comms: Rows) -> int:
    """Add a communication that equals that of an earlier row except for its place and times."""
    n = comms.size[ROWS]
    _put_times(record, comms, n)
    comms.wide[OP_ROW, n] = op_row
    comms.wide[SUB_SEQ, n] = sub_seq
    for i in range(IDS):
        comms.ids[i, n] = comms.ids[i, row]
    repeat_details(buf, row, record, comms)
    _close_row(comms.wide[ELEMENTS, row], comms, n)
    return int(n)


@inlined
def add_own_comm(
    buf: Bytes, p: int, q: int, op: int, record: Longs, ops: Rows, comms: Rows, texts: Tokens
) -> int:
    """Add the row of an operation that is itself a communication; its name is `buf[p:q]`."""
    n = ops.size[ROWS] - 1
    first = ops.wide[SHAPE_END, n - 1] if n > 0 else 0
    for i in range(first, ops.size[DIMENSIONS]):
        comms.shapes[comms.size[DIMENSIONS]] = ops.shapes[i]
        comms.size[DIMENSIONS] += 1
    if op == DDP_GRAD_COMM:
        return _without_times(add_comm(record, record[FUNC], NULL, n, comms), comms)
    return add_comm(record, intern(texts, buf, p, q), NULL, n, comms)


@inlined
def repeat_own_comm(buf: Bytes, row: int, record: Longs, ops: Rows, comms: Rows) -> None:
    """Add the row of the operation that was added last and is itself a communication."""
    n = ops.size[ROWS] - 1
    added = repeat_comm(buf, row, record, NULL, n, comms)
    if ops.ids[OP, n] == DDP_GRAD_COMM:
        _without_times(added, comms)


@inlined
def _without_times(row: int, comms: Rows) -> int:
    """Remove a communication's times: they belong to the whole gradient bucket."""
    for column in (START, END, DURATION_NS):
        comms.wide[column, row] = NULL
    return row


@inlined
def fits(rows: Rows, more_rows: int, length: int) -> bool:
    """Return whether more rows and the dimensions and attributes of `length` bytes fit."""
    size = rows.size
    return (
        bool(size[ROWS] + more_rows <= rows.wide.shape[1])
        and bool(size[DIMENSIONS] + length <= rows.shapes.size)
        and bool(size[ATTRIBUTES] + length <= rows.keys.size)
        and bool(size[VALUE_BYTES] + length <= rows.values.size)
    )
