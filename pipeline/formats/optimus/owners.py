"""Assign layer rows of a pipeline-training log to ranks that write over each other.

A rank prints a block: a header, then one row per layer. Ranks share the stream, so rows of open
blocks come in any order between ranks, in their own order within one, several to a line or each on
its own. A row goes to the one open block that it continues:

1. the block whose next row it is, by layer and number of calls, as its rank prints in other steps;
2. else the block that prints it later (rows between are lost);
3. else the only open block, if its next row is this layer with another number of calls, which no
   rank prints, and the row follows its header as usual;
4. else, among headers not seen in other steps: the only one, or, if the headers are on one line
   and so are as many rows, the k-th row to the k-th header; layers must ascend within a block and
   from stage to stage.

If two blocks fit, none is guessed: the row waits until one of them continues after it, else it is
rejected.
"""

from __future__ import annotations

from typing import NamedTuple

from tracelake.formats.optimus import scan
from tracelake.kernels.compiled import inlined, kernel, typed
from tracelake.kernels.numbers import Longs

NO_HEADER, AMBIGUOUS, UNEXPECTED, FOREIGN = 4, 5, 6, 7  # fates, after those of the scan
_GIVEN = -1
_ZERO, _ONE = typed(0), typed(1)

# Columns of open blocks. OF_SLOT to OF_STEP are those of the header; NTH counts headers; ROWS of
# the list have passed, of which LOST were never seen; LAST is the layer of the last row if the list
# is unknown; WAITING is the row that may be the next one.
OF_SLOT, OF_RANK, OF_STAGE, OF_STEP, NTH, ROWS, LOST, LAST, WAITING = range(9)
OPEN_LIMIT = 256
_NONE, _SEVERAL = -1, -2  # rows that wait; those of an earlier window count as several

# Entries of the book. A group is a sequence of headers without a row between.
OPEN = 0  # open blocks
HEADERS, FIRST, GROUP_LINE = 1, 2, 3  # so far; before the group; its line (-1: several)
FRESH, TRUST = 4, 5  # no row yet; no broken header in it, no row that contradicts its places
ALONE = 6  # the last header, by its number; -1 if it is broken or not alone on its line
PLACED = 7  # line whose rows were found to follow the group's headers
UNSEEN = 8  # rows of closed blocks that were never seen
FLAWS = 9  # blocks that lack a row, and steps that do not follow the one before
BOOK = 10

# Columns of slots: the first of the rows that it prints, how many, and the steps so far, -1 before.
LIST_START, LIST_SIZE, FIRST_STEP, LAST_STEP = range(4)
UNKNOWN, CONTESTED = -1, -2  # sizes of an unknown list, and of one with two candidates
LIST_CODE, LIST_CALLS, LIST_STAGE = range(3)


class Work(NamedTuple):
    """A window of a log, and what is needed to assign its rows.

    Attributes:
        pieces: The window, whole lines.
        slots: Their columns.
        rows: What the slots print.
        opened: Open blocks, in the order of their headers.
    """

    pieces: Longs
    slots: Longs
    rows: Longs
    opened: Longs
    book: Longs


@inlined
def _is_row(w: Work, k: int, i: int) -> bool:
    """Return whether a piece says what a row of the lists does."""
    same = w.rows[k, LIST_CODE] == w.pieces[scan.CODE, i]
    return bool(same and w.rows[k, LIST_CALLS] == w.pieces[scan.CALLS, i])


@inlined
def _how(w: Work, i: int, b: int) -> int:
    """Return BLOCK for a row alone on its line whose header was alone too, else MERGED."""
    alone = w.opened[b, NTH] == w.book[ALONE] and w.pieces[scan.FATE, i] == scan.BLOCK
    return scan.BLOCK if alone else scan.MERGED


@inlined
def _give(w: Work, i: int, b: int, how: int) -> None:
    for k in range(3):
        w.pieces[scan.RANK + k, i] = w.opened[b, OF_RANK + k]
    w.pieces[scan.FATE, i] = how


@inlined
def _close(w: Work, b: int) -> None:
    w.book[OPEN] -= 1
    for k in range(b, w.book[OPEN]):
        for column in range(WAITING + 1):
            w.opened[k, column] = w.opened[k + 1, column]


@inlined
def _ahead(w: Work, b: int) -> tuple[int, int]:
    """Return where the rows are that the block still has to print, and how many."""
    slot, passed = w.opened[b, OF_SLOT], w.opened[b, ROWS]
    return w.slots[slot, LIST_START] + passed, w.slots[slot, LIST_SIZE] - passed


@inlined
def _fit(w: Work, i: int, most: int) -> tuple[int, int, int]:
    """Return the blocks that print the row next, after up to `most` - 1 others.

    Returns:
        Number of blocks, the last one, and how many rows of it come before.
    """
    found, block, lost = 0, -1, 0
    for b in range(w.book[OPEN]):
        first, left = _ahead(w, b)
        for k in range(min(left, most)):
            if _is_row(w, first + k, i):
                found, block, lost = found + 1, b, k
                break
    return found, block, lost


@inlined
def _is_other_count(w: Work, i: int) -> bool:
    """Return whether the row is the next one of the only block but for its number of calls."""
    if w.book[OPEN] != 1 or _how(w, i, 0) != scan.BLOCK:
        return False
    first, left = _ahead(w, 0)
    if left < 1 or w.rows[first, LIST_CODE] != w.pieces[scan.CODE, i]:
        return False
    for k in range(w.rows.shape[0]):  # noqa: SIM110 -- kernels have no generators
        if _is_row(w, k, i):
            return False
    return True


@inlined
def _advance(w: Work, b: int, lost: int) -> None:
    """Move the block behind lost rows and one more; this resolves a row that waited in between."""
    waiting = w.opened[b, WAITING]
    w.opened[b, ROWS] += lost + 1
    if lost == 1 and waiting >= 0:
        lost = 0
        _give(w, waiting, b, scan.MERGED)
        for k in range(w.book[OPEN]):
            if w.opened[k, WAITING] == waiting:
                w.opened[k, WAITING] = _NONE
    w.opened[b, WAITING] = _NONE
    w.opened[b, LOST] += lost
    if _ahead(w, b)[1] == 0:
        w.book[UNSEEN] += w.opened[b, LOST]
        w.book[FLAWS] -= w.opened[b, LOST] == 0
        _close(w, b)


@inlined
def _with_list(w: Work, i: int) -> int:
    """Assign a row to the block that expects it; return _GIVEN, UNEXPECTED or AMBIGUOUS."""
    found, b, lost = _fit(w, i, _ONE)
    if found > 1:
        for k in range(w.book[OPEN]):
            first, left = _ahead(w, k)
            if left > 0 and _is_row(w, first, i):
                w.opened[k, WAITING] = i if w.opened[k, WAITING] == _NONE else _SEVERAL
    elif found == 0:
        found, b, lost = _fit(w, i, w.rows.shape[0])
        if found == 0 and _is_other_count(w, i):
            found, b, lost = 1, 0, 0
    if found != 1:
        return AMBIGUOUS if found else UNEXPECTED
    _give(w, i, b, _how(w, i, b))
    _advance(w, b, lost)
    return _GIVEN


@inlined
def _member(w: Work, nth: int) -> int:
    """Return the group's open block of that header if its list is unknown, else -1."""
    for b in range(w.book[OPEN]):
        if w.opened[b, NTH] == w.book[FIRST] + nth:
            return b if w.slots[w.opened[b, OF_SLOT], LIST_SIZE] == UNKNOWN else -1
    return -1


@inlined
def _line_start(w: Work, i: int) -> int:
    while i > 0 and w.pieces[scan.LINE, i - 1] == w.pieces[scan.LINE, i]:
        i -= 1
    return i


@inlined
def _in_place(w: Work, i: int) -> bool:
    """Return whether the line has a row per header, and layers ascend in blocks and stages."""
    first = k = _line_start(w, i)
    stage = order = -1
    while k < w.pieces.shape[1] and w.pieces[scan.LINE, k] == w.pieces[scan.LINE, i]:
        if w.pieces[scan.KIND, k] != scan.LAYER:
            return False
        b = _member(w, k - first)
        if b >= 0:
            below, here = stage, min(w.pieces[scan.CODE, k], scan.NAMED)
            stage = w.opened[b, OF_STAGE]
            if here <= w.opened[b, LAST] or (stage - below) * (here - order) < 0:
                return False
            order = here
        k += 1
    return bool(k - first == w.book[HEADERS] - w.book[FIRST] and w.book[GROUP_LINE] >= 0)


@inlined
def _distrust(w: Work, i: int) -> None:
    """Undo the assignment by place of the group's earlier rows."""
    w.book[TRUST] = False
    while i > 0 and w.pieces[scan.KIND, i - 1] != scan.HEADER:
        i -= 1
        if w.pieces[scan.FATE, i] == scan.BY_PLACE:
            w.pieces[scan.FATE, i] = AMBIGUOUS


@inlined
def _in_stage(w: Work, order: int, stage: int) -> bool:
    """Return whether a layer can be on the stage: after earlier stages and before later ones."""
    for k in range(w.rows.shape[0]):
        other = min(w.rows[k, LIST_CODE], scan.NAMED)
        if (w.rows[k, LIST_STAGE] - stage) * (other - order) < 0:
            return False
    return True


@inlined
def _without_list(w: Work, i: int) -> int:
    """Assign a row in no list to a block without one; return the reason if none fits."""
    book, line = w.book, w.pieces[scan.LINE, i]
    found, b, contested = 0, -1, not book[TRUST]
    for k in range(book[OPEN]):
        if w.opened[k, NTH] >= book[FIRST]:
            size = w.slots[w.opened[k, OF_SLOT], LIST_SIZE]
            contested |= size == CONTESTED
            if size == UNKNOWN:
                found, b = found + 1, k
    if found == 0 and not contested:
        return UNEXPECTED if book[OPEN] else NO_HEADER
    if found > 1 and not contested:
        if book[PLACED] != line and not _in_place(w, i):
            _distrust(w, i)
            return AMBIGUOUS
        book[PLACED] = line
        b = _member(w, i - _line_start(w, i))
    if contested or b < 0:
        return AMBIGUOUS
    order = min(w.pieces[scan.CODE, i], scan.NAMED)
    if (order <= w.opened[b, LAST] and order != scan.NAMED) or not _in_stage(
        w, order, w.opened[b, OF_STAGE]
    ):
        return UNEXPECTED
    w.opened[b, LAST] = order
    _give(w, i, b, scan.BY_PLACE if found > 1 else _how(w, i, b))
    return _GIVEN


@inlined
def _join_group(w: Work, i: int) -> None:
    """Add the header, good or bad, to the group, or start one."""
    book, line = w.book, w.pieces[scan.LINE, i]
    if not book[FRESH]:
        book[FIRST], book[GROUP_LINE] = book[HEADERS], line
        book[FRESH] = book[TRUST] = True
    book[HEADERS] += 1
    book[ALONE] = -1
    if book[GROUP_LINE] != line:
        book[GROUP_LINE] = -1


@inlined
def _open_block(w: Work, i: int) -> None:
    """Open the header's block and close its rank's earlier one."""
    book, opened, slot, step = w.book, w.opened, w.pieces[scan.SLOT, i], w.pieces[scan.STEP, i]
    for b in range(book[OPEN]):
        if opened[b, OF_RANK] == w.pieces[scan.RANK, i]:
            book[UNSEEN] += opened[b, LOST] + max(0, _ahead(w, b)[1])
            _close(w, b)
            break
    if book[OPEN] == OPEN_LIMIT:
        _close(w, _ZERO)
    b = book[OPEN]
    book[OPEN] += 1
    for k in range(3):
        opened[b, OF_RANK + k] = w.pieces[scan.RANK + k, i]
    opened[b, OF_SLOT], opened[b, NTH] = slot, book[HEADERS] - 1
    opened[b, ROWS] = opened[b, LOST] = 0
    opened[b, LAST] = opened[b, WAITING] = _NONE
    if w.pieces[scan.FATE, i] == scan.BLOCK:
        book[ALONE] = book[HEADERS] - 1
    if w.slots[slot, FIRST_STEP] < 0:
        w.slots[slot, FIRST_STEP] = step
    else:
        book[FLAWS] += step != w.slots[slot, LAST_STEP] + 1
    w.slots[slot, LAST_STEP] = step
    book[FLAWS] += 1


@kernel
def assign(w: Work) -> None:
    """Find the owner of every layer row of a window, or the reason to reject it.

    It writes RANK, STAGE, STEP and FATE of the rows, and updates the state: steps of `slots`,
    `opened` and `book`.
    """
    w.book[UNSEEN] = 0
    for b in range(w.book[OPEN]):
        if w.opened[b, WAITING] >= 0:
            w.opened[b, WAITING] = _SEVERAL
    for i in range(w.pieces.shape[1]):
        kind = w.pieces[scan.KIND, i]
        if kind == scan.LAYER:
            w.book[FRESH] = False
            if w.book[OPEN] == 1:  # nearly always
                first, left = _ahead(w, _ZERO)
                if left > 1 and _is_row(w, first, i):
                    _give(w, i, _ZERO, _how(w, i, _ZERO))
                    w.opened[0, ROWS] += 1
                    w.opened[0, WAITING] = _NONE
                    continue
            fate = _with_list(w, i)
            if fate == UNEXPECTED:
                fate = _without_list(w, i)
            if fate != _GIVEN:
                w.pieces[scan.FATE, i] = fate
        elif kind == scan.HEADER:
            _join_group(w, i)
            _open_block(w, i)
        elif kind == scan.BAD and w.pieces[scan.FATE, i] in (scan.BAD_HEADER, FOREIGN):
            _join_group(w, i)
            w.book[TRUST] = False
        elif kind == scan.BAD:
            w.book[FRESH] = False
