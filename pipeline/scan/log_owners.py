"""Which rank a layer row of a pipeline-training log belongs to, where ranks write over each other.

A rank prints a block: a header, then one row per layer. Ranks share the stream, so rows of open
blocks come in any order between ranks, in their own order within one, several to a line or each on
its own. A row goes to the one open block that it continues:

1. the block whose next row it is, by layer and number of calls, as its rank prints in other steps;
2. else the block that prints it later (rows between are lost);
3. else the only open block, if its next row is this layer with another number of calls, which no
   rank prints, and the row stands behind its header as rows do;
4. else, among headers not seen in other steps: the only one, or, where the headers stand on one
   line and so do as many rows, the k-th row to the k-th header; layers ascend within a block and
   from stage to stage, or it is none.

Where two blocks fit, none is guessed: the row waits until one of them goes on behind it, and is
rejected else.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from pipeline.scan.compiled import kernel
from pipeline.scan.log_blocks import (
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
from pipeline.scan.log_lines import BAD, BAD_HEADER, HEADER, LAYER
from pipeline.scan.log_records import NAME_BASE

NO_HEADER, AMBIGUOUS, UNEXPECTED, FOREIGN = 4, 5, 6, 7  # reasons, behind those of the scan


@kernel
def order_of(code, embed):
    """Place of a layer within the model; names behind the numbers share one."""
    return -1 if code == embed else min(code, NAME_BASE)


@kernel
def _how(pieces, i, block, book):
    """BLOCK for a row that has its line to itself behind a header that had, else MERGED."""
    latest = block.group == book[GROUP] and block.ordinal == book[SIZE] - 1
    return BLOCK if latest and book[ALONE] and not shared(pieces, i) else MERGED


@kernel
def _line_start(pieces, i):
    while i > 0 and pieces[i - 1].line == pieces[i].line:
        i -= 1
    return i


@kernel
def _member(state, lists, ordinal):
    """The group's open block with that ordinal and no list, or -1."""
    for b in range(state.book[COUNT]):
        block = state.opened[b]
        if block.group == state.book[GROUP] and block.ordinal == ordinal:
            return b if lists.size[block.slot] == UNKNOWN else -1
    return -1


@kernel
def _in_place(pieces, i, embed, lists, state):
    """Whether the line has one row for each header, and layers ascend in blocks and stages."""
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
    """Takes back what the group's rows before this one were given by place."""
    book[TRUST] = False
    for k in range(book[START], i):
        if out[k].how == BY_PLACE:
            out[k].how, pieces[k].reason = REJECTED, AMBIGUOUS


@kernel
def _with_list(pieces, i, lists, state, out):
    """Gives a row to the block that expects it; -1, or UNEXPECTED or AMBIGUOUS."""
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
    """Whether a layer can be on the stage: not before what earlier ones print, nor behind later."""
    for slot in range(lists.size.size):
        start = lists.start[slot]
        for k in range(start, start + lists.size[slot]):
            if (lists.stage[slot] - stage) * (order_of(lists.code[k], embed) - order) < 0:
                return False
    return True


@kernel
def _without_list(pieces, i, embed, lists, state, out):
    """Gives a row that no list has to a block without one; the reason where there is none."""
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
    """Finds the owner of every layer row of a window.

    Args:
        pieces: Of the window, whole lines; the reason of a rejected row is written into it.
        slots: Of the headers, by piece.
        embed: Code of the layer before layer 0.
        lists: Of all slots.
        state: Brought forward.
        out: An OWNER per piece; `how` is REJECTED where there is none.
    """
    opened, book = state.opened, state.book
    start, size, codes, calls = lists.start, lists.size, lists.code, lists.calls
    book[MISSING] = book[START] = 0
    for b in range(book[COUNT]):
        opened[b].waits *= 2  # what waits in an earlier window is beyond settling
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
