"""Number the operations of rank traces: step, order and micro-batch, rank by rank.

A step of a rank ends with its `optimizer_step`. Where that is missing, lost or never traced, a step
ends where the sequence of operations restarts, at the first of

- the schedule's phase goes back (warmup, help, steady, cooldown, finalize; operations without a
  phase are ignored),
- a get_batch, forward_step or recv_forward after a gradient all-reduce,
- only in runs that trace no `optimizer_step` and no gradient all-reduce, and for operations without
  a phase: the operation that began the step comes again after a backward_step, with no forward_step
  waiting for its backward_step and with a `batch_id` that has not grown, which distinguishes the
  next step from the next micro-batch.

An `optimizer_step` whose line was written twice is of the step that the first one ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.layout import DDP_GRAD_COMM
from tracelake.kernels.compiled import inlined, kernel
from tracelake.kernels.numbers import NULL, Longs

PHASES = ("warmup", "help", "steady", "cooldown", "finalize")

# Columns of `Book.rows` for a rank ...
SEQ, STEP, FORWARDS, BACKWARDS, _PHASE, _FIRST_OP, _FINALIZING, ENDED, UNENDED = range(9)
# ... and for an operation of a rank.
_OP_STEP, _OP_COUNT, _OP_BATCH, _OP_START, _OP_END = range(5)
_WIDTH = 9

_OP_BITS = 32


class Book(NamedTuple):
    """The state of each rank and of each operation of a rank: a hash table of small rows.

    Attributes:
        keys: rank << 32 | operation + 1; operation -1 is the rank itself. -1 = free.
        rows: Values of each key, (slot, column).
        used: Number of keys.
    """

    keys: Longs
    rows: npt.NDArray[np.int64]
    used: Longs


def new_book(capacity: int) -> Book:
    """Return an empty book for `capacity` keys."""
    slots = 1 << (2 * capacity - 1).bit_length()
    return Book(
        np.full(slots, -1, np.int64), np.zeros((slots, _WIDTH), np.int64), np.zeros(1, np.int64)
    )


def enlarged(book: Book, extra: int) -> Book:
    """Return the book, or a larger copy if it has no space for `extra` more keys."""
    capacity = book.keys.size // 2
    if book.used[0] + extra <= capacity:
        return book
    larger = new_book(2 * (capacity + extra))
    move(book, larger)
    return larger


def ranks(book: Book) -> dict[int, Longs]:
    """Return row of each rank."""
    slots = np.flatnonzero((book.keys >= 0) & (book.keys & ((1 << _OP_BITS) - 1) == 0))
    return {int(book.keys[s] >> _OP_BITS): book.rows[s] for s in slots}


@inlined
def _slot(book: Book, rank: int, op: int) -> int:
    """Return the slot of an operation of a rank; a new one is filled with zeros."""
    key = (rank << _OP_BITS) | (op + 1)
    mask = book.keys.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    while book.keys[slot] >= 0 and book.keys[slot] != key:
        slot = (slot + 1) & mask
    if book.keys[slot] < 0:
        book.keys[slot] = key
        book.used[0] += 1
    return int(slot)


@kernel
def move(book: Book, larger: Book) -> None:
    """Copy every key and its row."""
    for i in range(book.keys.size):
        if book.keys[i] >= 0:
            rank, op = book.keys[i] >> _OP_BITS, book.keys[i] & ((1 << _OP_BITS) - 1)
            slot = _slot(larger, rank, op - 1)
            for j in range(_WIDTH):
                larger.rows[slot, j] = book.rows[i, j]


@inlined
def _restarts(mine: Longs, operation: Longs, op: int, phase: int, batch: int, marked: bool) -> bool:
    """Return whether an operation begins another step than the one its rank is in."""
    if mine[ENDED] == 1:
        return True
    if op == DDP_GRAD_COMM:
        return False
    if phase >= 0 and mine[_PHASE] > phase:
        return True
    if mine[_FINALIZING] == 1 and layout.TRAITS[min(op, layout.KNOWN_OPS)] & layout.OPENS:
        return True
    again = not marked and phase < 0 and op == mine[_FIRST_OP]
    if not again or mine[BACKWARDS] == 0 or mine[FORWARDS] > mine[BACKWARDS]:
        return False
    grown = batch != NULL and operation[_OP_BATCH] != NULL and batch > operation[_OP_BATCH]
    return not grown


@kernel
def number_ops(
    rank: Longs,
    op: npt.NDArray[np.int32],
    phase: npt.NDArray[np.int8],
    batch: Longs,
    start: Longs,
    end: Longs,
    marked: bool,
    book: Book,
    step: npt.NDArray[np.int32],
    seq: Longs,
    micro_batch: npt.NDArray[np.int32],
    forwards: npt.NDArray[np.int32],
) -> None:
    """Number operations in the order in which their rank printed them.

    Args:
        phase: Index in PHASES, -1 for others.
        batch: `batch_id`, NULL where unknown.
        marked: Whether the run traces the end of a step.
        book: State so far; must have space for two more keys per operation.
        step: Out, from 1.
        seq: Out, from 1.
        micro_batch: Out, from 0.
        forwards: Out, forward steps of the step that an `optimizer_step` ends, -1 for others.
    """
    for i in range(rank.size):
        mine = book.rows[_slot(book, rank[i], -1)]
        operation = book.rows[_slot(book, rank[i], op[i])]
        traits = layout.TRAITS[min(op[i], layout.KNOWN_OPS)]
        mine[SEQ] += 1
        seq[i] = mine[SEQ]
        again = start[i] == operation[_OP_START] and end[i] == operation[_OP_END]
        if traits & layout.ENDS and again and NULL < start[i] < end[i]:
            step[i], micro_batch[i], forwards[i] = operation[_OP_STEP], operation[_OP_COUNT], -1
            operation[_OP_COUNT] += 1
            continue
        if mine[STEP] == 0 or _restarts(mine, operation, op[i], phase[i], batch[i], marked):
            mine[UNENDED] += mine[STEP] > 0 and mine[ENDED] == 0
            mine[STEP] += 1
            mine[FORWARDS] = mine[BACKWARDS] = mine[_PHASE] = mine[_FINALIZING] = mine[ENDED] = 0
            mine[_FIRST_OP] = -1
        if mine[_FIRST_OP] < 0 and op[i] != DDP_GRAD_COMM:
            mine[_FIRST_OP] = op[i]
        if operation[_OP_STEP] != mine[STEP]:
            operation[_OP_STEP] = mine[STEP]
            operation[_OP_COUNT] = 0
        mine[FORWARDS] += (traits & layout.FORWARD) != 0
        mine[BACKWARDS] += (traits & layout.BACKWARD) != 0
        mine[_FINALIZING] |= (traits & layout.FINALIZES) != 0
        mine[ENDED] = (traits & layout.ENDS) != 0
        if op[i] != DDP_GRAD_COMM:
            mine[_PHASE] = max(mine[_PHASE], phase[i])
        step[i] = mine[STEP]
        micro_batch[i] = operation[_OP_COUNT]
        forwards[i] = mine[FORWARDS] if mine[ENDED] == 1 else -1
        operation[_OP_COUNT] += 1
        operation[_OP_BATCH] = batch[i]
        operation[_OP_START], operation[_OP_END] = start[i], end[i]
