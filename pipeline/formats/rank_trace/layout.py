"""Define the layout that kernels of rank traces share: fields, problems, columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.kernels.numbers import Bytes, Longs
from tracelake.kernels.tokens import Tokens

# Role of a field, which is also its index in a record. ATTRIBUTE has no index.
ATTRIBUTE, DURATION, TIMESTAMP, STAGE, COUNT, SHAPE = range(6)
PHASE, DESCRIPTION, GROUP, DTYPE, FUNC, CALLER, TENSOR = range(6, 13)
LIST, BATCH, SEMANTICS, SEEN = range(13, 17)
# Begin and end of the digits of micro-batch, duration and time stamp, in pairs.
NUMBER_AT = 17
RECORD_SIZE = 23

KEYS = (
    b"stage_id mg_state duration timestamp description group_kind input__shape input__dtype "
    b"sub_operations batch_id op_semantics comm_func bucket_numel grad_dtype trace_src_func "
    b"func_name group"
).split()
"""Known keys, first in every key table; other keys are numbered after them."""

KNOWN_KEYS = len(KEYS)
DURATION_KEY, BATCH_KEY = KEYS.index(b"duration"), KEYS.index(b"batch_id")

_OPERATION = {
    b"stage_id": STAGE,
    b"mg_state": PHASE,
    b"duration": DURATION,
    b"timestamp": TIMESTAMP,
    b"description": DESCRIPTION,
    b"group_kind": GROUP,
    b"input__shape": SHAPE,
    b"input__dtype": DTYPE,
    b"sub_operations": LIST,
    b"batch_id": BATCH,
    b"op_semantics": SEMANTICS,
}
_BUCKET = {
    **{k: role for k, role in _OPERATION.items() if role not in (SHAPE, DTYPE)},
    b"comm_func": FUNC,
    b"bucket_numel": COUNT,
    b"grad_dtype": DTYPE,
}
_SUB_OPERATION = {
    b"trace_src_func": CALLER,
    b"duration": DURATION,
    b"timestamp": TIMESTAMP,
    b"input__shape": SHAPE,
    b"input__dtype": DTYPE,
    b"func_name": TENSOR,
    b"group": GROUP,
    b"comm_func": FUNC,
}
# Kinds of record. Sub-operations differ by their quotes, because a token in single quotes may
# contain what ends a token in double quotes.
OPERATION, BUCKET, SINGLE_QUOTED, DOUBLE_QUOTED, UNESCAPED = range(5)
_KINDS = (_OPERATION, _BUCKET, _SUB_OPERATION, _SUB_OPERATION, _SUB_OPERATION)
ROLES = np.array([[kind.get(k, ATTRIBUTE) for k in KEYS] for kind in _KINDS], np.int64)
"""Role of each known key, by kind of record."""

TEXTS = (b"None", b"metadata_placeholder", b"torch.")
"""Tokens that kernels know by number: 0 means a missing value."""

PLACEHOLDER_TEXT, TORCH_TEXT = 1, 2
HINTS = 32

# Problems of a record; 0 is none. ESCAPED means that escapes must be removed first.
NOT_A_RECORD, UNBALANCED, BAD_FIELD, DUPLICATE_KEY, BAD_NUMBER, BAD_SHAPE = range(1, 7)
MISSING_TIMESTAMP, BAD_SUB_OPERATION, TRUNCATED_LINE, ESCAPED = range(7, 11)

# A tensor larger than this has no size in bytes, because it would overflow.
MAX_ELEMENTS = (1 << 60) - 1
TOO_MANY_ELEMENTS = -1

# Columns of `Rows.size`.
ROWS, DIMENSIONS, ATTRIBUTES, VALUE_BYTES = range(4)

# Traits of operations: REDUCES are those that simulated runs have as placeholders.
OPENS, FORWARD, BACKWARD, LOSS, FINALIZES, REDUCES, ENDS, P2P, FORWARD_P2P = (
    1 << bit for bit in range(9)
)
# Traits, kind and pass of operations.
_KNOWN = {
    b"send_forward": (P2P | FORWARD_P2P, "send", "forward"),
    b"recv_forward": (P2P | FORWARD_P2P | OPENS, "recv", "forward"),
    b"send_backward": (P2P, "send", "backward"),
    b"recv_backward": (P2P, "recv", "backward"),
    b"dp_allreduce": (FINALIZES | REDUCES, "gradient_sync", None),
    b"exp_dp_allreduce": (FINALIZES, "gradient_sync", None),
    b"ep_dp_allreduce": (FINALIZES, "gradient_sync", None),
    b"ep_allreduce": (FINALIZES | REDUCES, "gradient_sync", None),
    b"pep_allreduce": (FINALIZES, "gradient_sync", None),
    b"ddp_grad_comm": (0, None, None),  # describes a buffer
    b"get_batch": (OPENS, "data", "forward"),
    b"forward_step": (OPENS | FORWARD, "forward", "forward"),
    b"loss_func": (LOSS, "loss", None),
    b"backward_step": (BACKWARD, "backward", "backward"),
    b"optimizer_step": (ENDS, "optimizer", None),
}
OPS = tuple(_KNOWN)
"""Operations that kernels know by number: communications first."""

KNOWN_OPS = len(OPS)
TRAITS = np.array([*(traits for traits, _, _ in _KNOWN.values()), 0])
"""Traits of these, and behind them of all others."""

# What an operation does, and the pass that it belongs to.
KINDS = {op.decode(): kind for op, (_, kind, _) in _KNOWN.items() if kind}
PASSES = {op.decode(): one for op, (_, _, one) in _KNOWN.items() if one}

LAST_COMMUNICATION = DDP_GRAD_COMM = OPS.index(b"ddp_grad_comm")

# Columns of `Rows.wide`; the first six are those of both tables.
START, END, DURATION_NS, ELEMENTS, SHAPE_END, ATTRIBUTE_END = range(6)
SOURCE, LINE, RANK, OP_STAGE, OP_BATCH, MARKS = range(6, 12)
OP_ROW, SUB_SEQ = range(6, 8)
OP_WIDE, COMM_WIDE = 12, 8

# Columns of `Rows.ids`.
OP, OP_PHASE, OP_DESCRIPTION, OP_GROUP, OP_DTYPE = range(5)
COMM_FUNC, COMM_CALLER, COMM_TENSOR, COMM_GROUP, COMM_DTYPE = range(5)
IDS = 5

# Bits of MARKS.
PLACEHOLDER_TIMES, METADATA_PLACEHOLDER = 1, 2

# Kind of a line: 0 a record, above 0 a problem, else one of these.
BLANK, PLAN, UNTRACED = -1, -2, -3

# Places in `Lines.lead`.
LEAD_BYTES, MARK_SEEN = range(2)

# Columns of the spans of a chunk: index of the first line, bytes, source, number of that line.
SPAN_FIRST, SPAN_START, SPAN_STOP, SPAN_SOURCE, SPAN_LINE = range(5)

# Columns of the accounts of each span: records, then lines by -kind, and rows.
COUNT_ROWS = 4
COUNTS = 5


class Rows(NamedTuple):
    """Columns under construction of `ops` or `comms`.

    Attributes:
        wide: Numbers, (column, row).
        ids: Tokens, (column, row).
        shapes: Dimensions of all rows, end to end.
        keys: Key of each attribute of all rows.
        ends: End of each attribute's value in `values`; its complement for a missing value.
        size: Used rows, dimensions, attributes and value bytes.
    """

    wide: Longs
    ids: npt.NDArray[np.int32]
    shapes: Longs
    keys: npt.NDArray[np.int32]
    ends: Longs
    values: Bytes
    size: Longs


COUNTED = {
    "wide": ROWS,
    "ids": ROWS,
    "shapes": DIMENSIONS,
    "keys": ATTRIBUTES,
    "ends": ATTRIBUTES,
    "values": VALUE_BYTES,
}
"""The other arrays of `Rows`, and the column of `size` that says how much of each is used."""


class Words(NamedTuple):
    """Keys and texts of fields, and the latest ones by kind of record; -1 for not yet.

    Attributes:
        hints: The latest keys, by place in the record.
        remembered: The latest texts, by role.
    """

    keys: Tokens
    texts: Tokens
    hints: Longs
    remembered: Longs


def nothing_latest() -> tuple[Longs, Longs]:
    """Return the latest keys and texts before the first record."""
    hints, remembered = (np.full((len(_KINDS), n), -1, np.int64) for n in (HINTS, RECORD_SIZE))
    return hints, remembered


class Repeats(NamedTuple):
    """The last few distinct operations or sub-operations of a chunk; see `rows`.

    Attributes:
        patterns: (pattern, column).
        latest: The pattern that was last repeated or stored.
        used: How many were stored since the beginning of the chunk.
        record: Values of the current operation or sub-operation.
    """

    patterns: Longs
    latest: Longs
    used: Longs
    record: Longs


class Lines(NamedTuple):
    """Rejected lines, and working memory for one line.

    Attributes:
        rejects: Span, line, start, end and problem of each.
        n_rejects: Used rows of `rejects`.
        lead: Bytes up to the run's first mark of a step's end, and whether one was seen.
        place: Source, line and rank of the current line.
        saved: Sizes of ops and comms before the line.
        scratch: Text of a sub-operation without its escapes.
    """

    rejects: Longs
    n_rejects: Longs
    lead: Longs
    place: Longs
    saved: Longs
    scratch: Bytes


class State(NamedTuple):
    """All data that a kernel reads and writes, other than the chunk.

    Attributes:
        whole: Operations that come again.
        parts: Sub-operations that come again.
    """

    words: Words
    names: Tokens
    lines: Lines
    whole: Repeats
    parts: Repeats
    ops: Rows
    comms: Rows
