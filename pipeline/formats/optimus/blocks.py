"""Track open blocks of a pipeline-training log: which one a row continues, what closes them.

A rank prints a block, a header and one row per layer. Ranks share the stream, so several blocks can
be open; the list of rows that a rank prints in every step shows which one a row continues.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.lines import RECORD
from tracelake.kernels.compiled import kernel

REJECTED, BLOCK, MERGED = 0, 1, 2
NEXT, LATER, OTHER_CALLS = 0, 1, 2
UNKNOWN, CONTESTED = -1, -2  # sizes of an unknown list, and of one with two candidates

OWNER = np.dtype([("rank", "i4"), ("stage", "i4"), ("step", "i4"), ("how", "i4")], align=True)
OPEN = np.dtype(
    [
        ("slot", "i8"),
        ("rank", "i8"),
        ("stage", "i8"),
        ("step", "i8"),
        ("group", "i8"),
        ("ordinal", "i8"),  # in its group
        ("at", "i8"),  # rows of the list so far
        ("missing", "i8"),  # those of them that were never seen
        ("order", "i8"),  # of the last row, if the list is unknown
        ("waits", "i8"),  # rows that may be this block's next one
        ("waiting", "i8"),  # the first of them
    ],
    align=True,
)
HISTORY = np.dtype(
    [
        ("opened", "i8"),
        ("completed", "i8"),
        ("first", "i8"),  # step
        ("last", "i8"),
        ("gaps", "i8"),
    ],
    align=True,
)
OPEN_LIMIT = 256

# A group is a sequence of headers without a row between. Slots of the book:
COUNT = 0  # open blocks
GROUP, SIZE, LINE, START = 1, 2, 3, 4  # its number, headers, line (-1: several), first piece
FRESH, TRUST, ALONE = 5, 6, 7  # no row yet; no broken header in it; its last header's line
PLACED = 8  # line whose rows were found to follow the group's headers
MISSING = 9  # rows of closed blocks that were never seen
_BOOK = 10
BY_PLACE = 3  # a merged row, assigned by its place in the line only


class Lists(NamedTuple):
    """Rows that each slot (a rank on a stage) prints: `size` of them from `start` on."""

    stage: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    code: npt.NDArray[np.int64]
    calls: npt.NDArray[np.int64]


class State(NamedTuple):
    """Open blocks, and what was seen of each slot; passed from window to window."""

    opened: npt.NDArray[np.void]
    book: npt.NDArray[np.int64]
    history: npt.NDArray[np.void]


def no_blocks() -> State:
    """Return a state without blocks and slots."""
    book = np.zeros(_BOOK, np.int64)
    book[TRUST] = True
    return State(np.zeros(OPEN_LIMIT, OPEN), book, np.zeros(0, HISTORY))


def with_slots(state: State, slots: int) -> State:
    """Return a copy with space for this many slots."""
    history = np.zeros(slots, HISTORY)
    history[: state.history.size] = state.history
    return State(state.opened.copy(), state.book.copy(), history)


@kernel
def shared(pieces, i):
    """Return whether another header or row, good or bad, is on the piece's line."""
    line = pieces[i].line
    for way in (-1, 1):
        k = i + way
        while 0 <= k < pieces.size and pieces[k].line == line:
            if pieces[k].kind != RECORD:
                return True
            k += way
    return False


@kernel
def fit(state, lists, piece, reach):
    """Return the blocks that the row continues: number, last one, and the row's place there.

    Args:
        reach: NEXT for the next row, LATER for any to come, OTHER_CALLS for the next row whatever
            its number of calls.
    """
    found, block, place = 0, -1, -1
    for b in range(state.book[COUNT]):
        start, size = lists.start[state.opened[b].slot], lists.size[state.opened[b].slot]
        at = state.opened[b].at
        for k in range(at, size if reach == LATER else min(size, at + 1)):
            if lists.code[start + k] == piece.code and (
                reach == OTHER_CALLS or lists.calls[start + k] == piece.count
            ):
                found, block, place = found + 1, b, k
                break
    return found, block, place


@kernel
def printed(lists, piece):
    """Return whether any rank prints this layer with this number of calls."""
    for slot in range(lists.size.size):
        start = lists.start[slot]
        for k in range(start, start + lists.size[slot]):
            if lists.code[k] == piece.code and lists.calls[k] == piece.count:
                return True
    return False


@kernel
def wait(state, lists, piece, i):
    """Record in every block whose next row this may be that the row waits."""
    for b in range(state.book[COUNT]):
        block = state.opened[b]
        k = lists.start[block.slot] + block.at
        if (
            block.at < lists.size[block.slot]
            and lists.code[k] == piece.code
            and lists.calls[k] == piece.count
        ):
            if block.waits == 0:
                block.waiting = i
            block.waits += 1


@kernel
def _close(state, b):
    for k in range(b, state.book[COUNT] - 1):
        state.opened[k] = state.opened[k + 1]
    state.book[COUNT] -= 1


@kernel
def give(out, i, block, how):
    """Assign the row to the block."""
    owner = out[i]
    owner.rank, owner.stage, owner.step, owner.how = block.rank, block.stage, block.step, how


@kernel
def advance(state, lists, b, place, out):
    """Move the block to the row at `place`; this resolves a row that waited in between."""
    block = state.opened[b]
    block.missing += place - block.at
    if block.waits == 1 and place == block.at + 1:
        block.missing -= 1
        give(out, block.waiting, block, MERGED)
        for k in range(state.book[COUNT]):
            other = state.opened[k]
            if k != b and other.waits == 1 and other.waiting == block.waiting:
                other.waits = 0
    block.waits = 0
    block.at = place + 1
    if block.at == lists.size[block.slot]:
        state.book[MISSING] += block.missing
        state.history[block.slot].completed += block.missing == 0
        _close(state, b)


@kernel
def open_block(pieces, i, slot, lists, state):
    """Open the header's block and close its rank's earlier one."""
    piece, book = pieces[i], state.book
    for b in range(book[COUNT]):
        block = state.opened[b]
        if block.rank == piece.code:
            book[MISSING] += block.missing + max(0, lists.size[block.slot] - block.at)
            _close(state, b)
            break
    if book[COUNT] == OPEN_LIMIT:
        _close(state, 0)
    block = state.opened[book[COUNT]]
    book[COUNT] += 1
    block.slot, block.rank, block.stage, block.step = slot, piece.code, piece.place, piece.count
    block.group, block.ordinal = book[GROUP], book[SIZE] - 1
    block.at = block.missing = block.waits = 0
    block.order = -2
    book[ALONE] = not shared(pieces, i)
    seen = state.history[slot]
    if seen.opened == 0:
        seen.first = piece.count
    else:
        seen.gaps += piece.count != seen.last + 1
    seen.opened += 1
    seen.last = piece.count


@kernel
def join_group(book, pieces, i):
    """Add the header, good or bad, to the group, or start one."""
    if not book[FRESH]:
        book[GROUP] += 1
        book[SIZE] = 0
        book[LINE], book[START] = pieces[i].line, i
        book[FRESH] = book[TRUST] = True
    book[SIZE] += 1
    if book[LINE] != pieces[i].line:
        book[LINE] = -1
