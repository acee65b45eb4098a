"""Read the lines of a rank trace: assign each to its source, and count its outcome."""

from __future__ import annotations

from tracelake.formats.rank_trace.layout import (
    COUNT_ROWS,
    FIRST_REDUCE,
    LAST_REDUCE,
    LEAD_BYTES,
    MARK_SEEN,
    OP,
    OPTIMIZER_STEP,
    REJECT_END,
    REJECT_LINE,
    REJECT_PROBLEM,
    REJECT_SPAN,
    REJECT_START,
    ROWS,
    SPAN_FIRST,
    SPAN_LINE,
    SPAN_SOURCE,
    SPAN_START,
    SPAN_STOP,
    TRUNCATED_LINE,
    Longs,
    State,
)
from tracelake.formats.rank_trace.records import MIN_SUB_OPERATION, read_line
from tracelake.formats.rank_trace.repeats import forget
from tracelake.formats.rank_trace.rows import fits
from tracelake.kernels.compiled import inlined, kernel
from tracelake.kernels.numbers import Bytes
from tracelake.kernels.tokens import has_room


@inlined
def _ends_step(op: int) -> bool:
    """Return whether an operation only occurs when the gradients of a step are complete."""
    return bool(op == OPTIMIZER_STEP) or bool(FIRST_REDUCE <= op <= LAST_REDUCE)


@inlined
def room_for(
    length: int,
    state: State,
) -> bool:
    """Return whether any line of that length fits into the remaining space."""
    return (
        bool(state.lines.n_rejects[0] < state.lines.rejects.shape[0])
        and bool(length <= state.lines.scratch.size)
        and fits(state.ops, 1, length)
        and fits(state.comms, length // MIN_SUB_OPERATION + 2, length)
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
    forget(state.whole)
    forget(state.parts)
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
        kind = read_line(buf, s, e, spans[k, SPAN_SOURCE], line, state)
        if lines.lead[MARK_SEEN] == 0:
            lines.lead[LEAD_BYTES] += e - s + 1
            if kind == 0 and _ends_step(ops.ids[OP, ops.size[ROWS] - 1]):
                lines.lead[MARK_SEEN] = 1
        if kind != 0:
            for j in range(4):
                ops.size[j], comms.size[j] = lines.saved[j], lines.saved[4 + j]
            forget(state.whole)
            forget(state.parts)
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
    """Return the span from the k-th on that contains line i; empty spans are skipped."""
    k = max(k, 0)
    while k + 1 < spans.shape[0] and spans[k + 1, SPAN_FIRST] <= i:
        k += 1
    return int(k)
