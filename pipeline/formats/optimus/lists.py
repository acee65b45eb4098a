"""Find the owners of the layer rows of a pipeline-training log, window by window.

A stage prints the same rows in every step. The list of each rank is learned from blocks that no
other rank wrote into, anywhere in the window, and stored for later windows.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.blocks import (
    BLOCK,
    BY_PLACE,
    CONTESTED,
    MISSING,
    OWNER,
    REJECTED,
    UNKNOWN,
    Lists,
    State,
    no_blocks,
    shared,
    with_slots,
)
from tracelake.formats.optimus.lines import HEADER, LAYER, RECORD
from tracelake.formats.optimus.owners import AMBIGUOUS, assign
from tracelake.formats.optimus.records import NAME_BASE
from tracelake.formats.optimus.slots import Slots, distinct
from tracelake.kernels.compiled import kernel

Rows = npt.NDArray[np.int64]  # (n, 2): code of the layer, number of calls

_CANDIDATES = 8  # number of lists stored per slot
_MANY_VOTES, _RARE = 8, 2
_TRIAL_PIECES = 1 << 20  # maximum number of combinations of lists to try on a window
_LOST_ROW, _REJECTED_ROW = 1, 2  # cost of a list that does not explain a window
_ENOUGH_STEPS = 32  # more than the profiler prints by default


@kernel
def _mix(mark, value):
    """Return one step of a hash in which every bit of the value reaches every bit of the mark."""
    mark = (mark ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return mark ^ (mark >> np.uint64(32))


@kernel
def _plain_blocks(pieces, slots, found):
    """Find the blocks that no other rank seems to have written into; return their number.

    Header and rows are alone on their lines, all are valid, and no header without rows precedes
    it.

    Args:
        found: (3, n) out: index of the header, number of rows after it, and a hash of them.
    """
    before = LAYER
    n = k = 0
    for i in range(pieces.size):
        if pieces[i].kind != HEADER:
            before = before if pieces[i].kind == RECORD else pieces[i].kind
            continue
        good = before != HEADER and not shared(pieces, i)
        before = HEADER
        mark = _mix(np.uint64(0xCBF29CE484222325), slots[i])
        k = i + 1
        count = 0
        while good and k < pieces.size and pieces[k].kind in (LAYER, RECORD):
            if pieces[k].kind == LAYER:
                good = not shared(pieces, k)
                count += 1
                mark = _mix(_mix(mark, pieces[k].code), pieces[k].count)
            k += 1
        if good and count and (k == pieces.size or pieces[k].kind == HEADER):
            found[0, n], found[1, n], found[2, n] = i, count, np.int64(mark)
            n += 1
    return n


@kernel
def _rejected(pieces, owners):
    n = 0
    for i in range(pieces.size):
        n += pieces[i].kind == LAYER and owners[i].how == REJECTED
    return n


class Owners:
    """Finds the rank of every layer row of one log, given in windows of whole lines.

    Attributes:
        slots: Ranks on stages that have printed a header.
    """

    def __init__(self) -> None:
        self._state = no_blocks()
        self.slots = Slots()
        self._votes: list[dict[int, tuple[int, Rows]]] = []
        self._chosen: dict[int, Rows] = {}
        self._doubted = False

    @property
    def blocks(self) -> bool:
        """Tell whether there was any header."""
        return bool(self.slots.pairs)

    @property
    def complete(self) -> bool:
        """Tell whether every slot printed all its rows in every step, and all the same steps."""
        seen = self._state.history
        return bool(
            not self._doubted
            and (seen["opened"] == seen["completed"]).all()
            and not seen["gaps"].any()
            and np.unique(seen[["first", "last"]]).size <= 1
        )

    def resolve(
        self, pieces: npt.NDArray[np.void], embed: int, *, whole: bool = False
    ) -> npt.NDArray[np.void]:
        """Return the owner of every piece that is a layer row; `how` is REJECTED for the others.

        Args:
            pieces: Next window. Kind and reason of rejected pieces are written into it.
            embed: Code of the layer before layer 0.
            whole: The window is the whole log.
        """
        slots = self.slots.number(pieces)
        self._votes.extend({} for _ in range(len(self._votes), len(self.slots.pairs)))
        self._learn(pieces, slots)
        chosen = self._choose(pieces, slots, embed)
        out, self._state, _ = self._assign(pieces, slots, embed, chosen)
        if whole:
            self._doubted = _doubt(pieces, out)
        return out

    def _learn(self, pieces: npt.NDArray[np.void], slots: npt.NDArray[np.int64]) -> None:
        """Count the lists of plain blocks; store the most frequent ones of each slot."""
        found = np.empty((3, pieces.size), np.int64)
        count = _plain_blocks(pieces, slots, found)
        headers, rows, marks = found[:, :count]
        unique, where = distinct(marks)
        first = np.empty(unique.size, np.int64)
        first[where[::-1]] = np.arange(count)[::-1]
        touched = set()
        for mark, k, blocks in zip(
            unique.tolist(), first.tolist(), np.bincount(where).tolist(), strict=True
        ):
            votes = self._votes[slots[headers[k]]]
            touched.add(int(slots[headers[k]]))
            if mark in votes:
                votes[mark] = (votes[mark][0] + blocks, votes[mark][1])
                continue
            votes[mark] = (blocks, _layer_rows(pieces, int(headers[k]) + 1, int(rows[k])))
        for slot in touched:
            ranked = sorted(self._votes[slot].items(), key=lambda vote: -vote[1][0])
            self._votes[slot] = dict(ranked[:_CANDIDATES])

    def _candidates(self, slot: int, embed: int) -> list[Rows]:
        """Return possible lists of the slot by votes; rare ones are left out if many vote."""
        if slot in self._chosen:
            return [self._chosen[slot]]
        votes = list(self._votes[slot].values())
        if votes and votes[0][0] >= _MANY_VOTES:
            return [rows for count, rows in votes if _RARE * count >= votes[0][0]]
        return [rows for _, rows in votes if _ascends(rows, embed)]

    def _choose(
        self, pieces: npt.NDArray[np.void], slots: npt.NDArray[np.int64], embed: int
    ) -> list[Rows | int]:
        """Return the list of every slot, UNKNOWN, or CONTESTED if several fit equally.

        If slots have several candidates, every combination is tried, up to a limit. Of equally good
        ones, those whose layers ascend from stage to stage are chosen.
        """
        candidates = [self._candidates(slot, embed) for slot in range(len(self._votes))]
        chosen: list[Rows | int] = [
            lists[0] if len(lists) == 1 else CONTESTED if lists else UNKNOWN for lists in candidates
        ]
        trials = 1
        tried = []
        for slot, lists in enumerate(candidates):
            if len(lists) > 1 and trials * len(lists) * pieces.size <= _TRIAL_PIECES:
                trials *= len(lists)
                tried.append(slot)
        costs: dict[tuple[int, ...], tuple[int, int]] = {}
        for combination in itertools.product(*(range(len(candidates[slot])) for slot in tried)):
            for slot, k in zip(tried, combination, strict=True):
                chosen[slot] = candidates[slot][k]
            if tried:
                cost = self._assign(pieces.copy(), slots, embed, chosen)[2]
                costs[combination] = cost, len(self._disorder(chosen, embed))
        best = [combination for combination, cost in costs.items() if cost == min(costs.values())]
        for k, slot in enumerate(tried):
            left = [candidates[slot][j] for j in sorted({combination[k] for combination in best})]
            if all(np.array_equal(rows[:, 0], left[0][:, 0]) for rows in left):
                chosen[slot] = self._chosen[slot] = left[0]
            else:
                chosen[slot] = CONTESTED
        self._distrust(chosen, embed)
        return chosen

    def _disorder(self, chosen: list[Rows | int], embed: int) -> list[tuple[int, int]]:
        """Return slots of neighbouring stages whose layers overlap in the wrong order."""
        bounds = []
        for slot, (_, stage) in enumerate(self.slots.pairs):
            rows = chosen[slot]
            if not isinstance(rows, int):
                order = _order(rows, embed)
                bounds.append((stage, int(order[0]), int(order[-1]), slot))
        pairs = itertools.pairwise(sorted(bounds))
        return [(below[3], above[3]) for below, above in pairs if below[2] > above[1]]

    def _distrust(self, chosen: list[Rows | int], embed: int) -> None:
        """Discard, of two stages out of order, the list with fewer blocks as evidence."""
        votes = {
            slot: sum(count for count, rows in seen.values() if rows is chosen[slot])
            for slot, seen in enumerate(self._votes)
        }
        for pair in self._disorder(chosen, embed):
            fewest = min(votes[slot] for slot in pair)
            for slot in pair:
                if votes[slot] == fewest < _MANY_VOTES:
                    chosen[slot] = CONTESTED
                    self._chosen.pop(slot, None)

    def _assign(
        self,
        pieces: npt.NDArray[np.void],
        slots: npt.NDArray[np.int64],
        embed: int,
        chosen: list[Rows | int],
    ) -> tuple[npt.NDArray[np.void], State, int]:
        """Return owners, the state after the window, and what the lists leave unexplained."""
        rows = [lists for lists in chosen if not isinstance(lists, int)]
        size = np.array([x if isinstance(x, int) else x.shape[0] for x in chosen], np.int64)
        flat = np.concatenate([np.empty((0, 2), np.int64), *rows])
        start = np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0)
        stage = np.array([stage for _, stage in self.slots.pairs], np.int64)
        lists = Lists(stage, start, size, flat[:, 0].copy(), flat[:, 1].copy())
        state = with_slots(self._state, size.size)
        out = np.empty(pieces.size, OWNER)
        assign(pieces, slots, embed, lists, state, out)
        cost = _REJECTED_ROW * _rejected(pieces, out) + _LOST_ROW * int(state.book[MISSING])
        return out, state, cost


def _layer_rows(pieces: npt.NDArray[np.void], first: int, count: int) -> Rows:
    """Return the first `n` layer rows from a piece on."""
    stop = first + count
    while np.count_nonzero(pieces["kind"][first:stop] == LAYER) < count:
        stop += 1
    rows = pieces[first:stop][pieces["kind"][first:stop] == LAYER]
    return np.stack([rows["code"], rows["count"]], axis=1)


def _order(rows: Rows, embed: int) -> Rows:
    """Return positions of the layers in the model; layers without a number share the last."""
    return np.where(rows[:, 0] == embed, -1, np.minimum(rows[:, 0], NAME_BASE))


def _ascends(rows: Rows, embed: int) -> bool:
    order = _order(rows, embed)
    return bool(((np.diff(order) > 0) | (order[1:] == NAME_BASE)).all())


def _doubt(pieces: npt.NDArray[np.void], out: npt.NDArray[np.void]) -> bool:
    """Reject rows of a log that its other steps do not confirm; return whether there were any.

    In a log of few steps the list of a rank comes from few blocks, and may be wrong.
    From where ranks first wrote over each other, a row that is not known by its place stays only if
    its rank prints the same layer with the same number of calls in another step, and no other rank
    ever does.
    """
    rows = np.flatnonzero(pieces["kind"] == LAYER)
    if (out["how"][rows] == BLOCK).all():
        return False
    given = rows[out["how"][rows] != REJECTED]
    if np.unique(out["step"][given]).size >= _ENOUGH_STEPS:
        return False
    seen: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
    keys = list(zip(pieces["code"][rows].tolist(), pieces["count"][rows].tolist(), strict=True))
    owners = out[["rank", "stage", "step"]][rows].tolist()
    how = out["how"][rows].tolist()
    for key, owner, known in zip(keys, owners, how, strict=True):
        if known != REJECTED:
            seen.setdefault(key, set()).add(owner)
    disorder = doubted = False
    for i, key, known in zip(rows.tolist(), keys, how, strict=True):
        disorder |= known != BLOCK
        if known in (REJECTED, BY_PLACE) or not disorder:
            continue
        if len(seen[key]) < 2 or len({owner[:2] for owner in seen[key]}) > 1:
            out["how"][i], pieces["reason"][i] = REJECTED, AMBIGUOUS
            doubted = True
    return doubted
