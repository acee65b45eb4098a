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

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from tracelake.formats.optimus.blocks import (
    ALONE,
    BLOCK,
    BY_PLACE,
    CONTESTED,
    COUNT,
    FRESH,
    GROUP,
    LINE,
    MERGED,
    MISSING,
    OTHER_CALLS,
    PLACED,
    REJECTED,
    SIZE,
    START,
    TRUST,
    UNKNOWN,
    advance,
    fit,
    give,
    join_group,
    open_block,
    printed,
    shared,
    wait,
)
from tracelake.formats.optimus.lines import BAD, BAD_HEADER, HEADER, LAYER
from tracelake.formats.optimus.records import NAME_BASE
from tracelake.kernels.compiled import kernel

NO_HEADER, AMBIGUOUS, UNEXPECTED, FOREIGN = 4, 5, 6, 7  # reasons, after those of the scan


@kernel
def order_of(code, embed):
    """Return the position of a layer within the model; names after the numbers share one."""
    return -1 if code == embed else min(code, NAME_BASE)


@kernel
def _how(pieces, i, block, book):
    """Return BLOCK for a row alone on its line whose header was alone too, else MERGED."""
    latest = block.group == book[GROUP] and block.ordinal == book[SIZE] - 1
    return BLOCK if latest and book[ALONE] and not shared(pieces, i) else MERGED


@kernel
def _line_start(pieces, i):
    while i > 0 and pieces[i - 1].line == pieces[i].line:
        i -= 1
    return i


@kernel
def _member(state, lists, ordinal):
    """Return the group's open block with that ordinal and no list, or -1."""
    for b in range(state.book[COUNT]):
        block = state.opened[b]
        if block.group == state.book[GROUP] and block.ordinal == ordinal:
            return b if lists.size[block.slot] == UNKNOWN else -1
    return -1


@kernel
def _in_place(pieces, i, embed, lists, state):
    """Return whether the line has a row per header, and layers ascend in blocks and stages."""
    first = k = _line_start(pieces, i)
    stage, order = -1, -2
    while k < pieces.size and pieces[k].line == pieces[i].line:
        if pieces[k].kind != LAYER:
            return False
        b = _member(state, lists, k - first)
        if b >= 0:
            block, here = state.opened[b], order_of(pieces[k].code, embed)
            if here <= block.order or (block.stage - stage) * (here - order) < 0:
                return False
            stage, order = block.stage, here
        k += 1
    return k - first == state.book[SIZE] and state.book[LINE] >= 0


@kernel
def _distrust(pieces, i, book, out):
    """Undo the assignment by place of the group's earlier rows."""
    book[TRUST] = False
    for k in range(book[START], i):
        if out[k].how == BY_PLACE:
            out[k].how, pieces[k].reason = REJECTED, AMBIGUOUS


@kernel
def _with_list(pieces, i, lists, state, out):
    """Assign a row to the block that expects it; return -1, UNEXPECTED or AMBIGUOUS."""
    piece = pieces[i]
    found = 0
    for reach in range(3):
        if reach == OTHER_CALLS and (
            state.book[COUNT] != 1
            or _how(pieces, i, state.opened[0], state.book) == MERGED
            or printed(lists, piece)
        ):
            break
        found, b, place = fit(state, lists, piece, reach)
        if found:
            break
    if found == 0:
        return UNEXPECTED
    if found > 1:
        wait(state, lists, piece, i)
        return AMBIGUOUS
    block = state.opened[b]
    give(out, i, block, _how(pieces, i, block, state.book))
    advance(state, lists, b, place, out)
    return -1


@kernel
def _in_stage(order, stage, embed, lists):
    """Return whether a layer can be on the stage: after earlier stages and before later ones."""
    for slot in range(lists.size.size):
        start = lists.start[slot]
        for k in range(start, start + lists.size[slot]):
            if (lists.stage[slot] - stage) * (order_of(lists.code[k], embed) - order) < 0:
                return False
    return True


@kernel
def _without_list(pieces, i, embed, lists, state, out):
    """Assign a row in no list to a block without one; return the reason if none fits."""
    book = state.book
    found, b, contested = 0, -1, not book[TRUST]
    for k in range(book[COUNT]):
        size = lists.size[state.opened[k].slot]
        if state.opened[k].group == book[GROUP]:
            contested |= size == CONTESTED
            if size == UNKNOWN:
                found, b = found + 1, k
    if found == 0 and not contested:
        return UNEXPECTED if book[COUNT] else NO_HEADER
    if found > 1 and not contested:
        if book[PLACED] != pieces[i].line and not _in_place(pieces, i, embed, lists, state):
            _distrust(pieces, i, book, out)
            return AMBIGUOUS
        book[PLACED] = pieces[i].line
        b = _member(state, lists, i - _line_start(pieces, i))
    if contested or b < 0:
        return AMBIGUOUS
    block, order = state.opened[b], order_of(pieces[i].code, embed)
    if order <= block.order and order != NAME_BASE:
        return UNEXPECTED
    if not _in_stage(order, block.stage, embed, lists):
        return UNEXPECTED
    block.order = order
    give(out, i, block, BY_PLACE if found > 1 else _how(pieces, i, block, book))
    return -1


@kernel
def assign(pieces, slots, embed, lists, state, out):
    """Find the owner of every layer row of a window.

    Args:
        pieces: Pieces of the window, whole lines; reasons of rejected rows are written into it.
        slots: Slots of the headers, by piece.
        embed: Code of the layer before layer 0.
        lists: Lists of all slots.
        state: The state so far; it is updated.
        out: An OWNER per piece; `how` is REJECTED where there is none.
    """
    opened, book = state.opened, state.book
    start, size, codes, calls = lists.start, lists.size, lists.code, lists.calls
    book[MISSING] = book[START] = 0
    for b in range(book[COUNT]):
        opened[b].waits *= 2  # rows that waited in an earlier window cannot be resolved
    for i in range(pieces.size):
        piece = pieces[i]
        out[i].how = REJECTED
        if piece.kind == LAYER:
            book[FRESH] = False
            if book[COUNT] == 1:  # the plain case, without calls
                block = opened[0]
                k = start[block.slot] + block.at
                if (
                    block.at < size[block.slot]
                    and codes[k] == piece.code
                    and calls[k] == piece.count
                ):
                    give(out, i, block, _how(pieces, i, block, book))
                    block.at += 1
                    block.waits = 0
                    if block.at == size[block.slot]:
                        book[MISSING] += block.missing
                        state.history[block.slot].completed += block.missing == 0
                        book[COUNT] = 0
                    continue
            piece.reason = _with_list(pieces, i, lists, state, out)
            if piece.reason == UNEXPECTED:
                piece.reason = _without_list(pieces, i, embed, lists, state, out)
        elif piece.kind == HEADER or (piece.kind == BAD and piece.reason in (BAD_HEADER, FOREIGN)):
            join_group(book, pieces, i)
            if piece.kind == HEADER:
                open_block(pieces, i, slots[i], lists, state)
            else:
                book[TRUST] = False
        elif piece.kind == BAD:
            book[FRESH] = False
