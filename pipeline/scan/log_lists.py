"""Owners of the layer rows of a pipeline-training log, window by window.

A stage prints the same rows in every step. What each rank prints is learned from blocks that nobody
wrote into, wherever in the window they stand, and kept for later windows.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.scan.compiled import kernel
from pipeline.scan.log_blocks import (
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
from pipeline.scan.log_doubt import doubt
from pipeline.scan.log_lines import BAD, HEADER, LAYER, RECORD
from pipeline.scan.log_owners import FOREIGN, assign
from pipeline.scan.log_records import NAME_BASE

Rows = npt.NDArray[np.int64]  # (n, 2): code of the layer, number of calls

SLOT_LIMIT = 1 << 14
_TABLE_BITS = 15  # for twice as many
_CANDIDATES = 8  # lists of a slot that are remembered
_MANY_VOTES, _RARE = 8, 2
_TRIAL_PIECES = 1 << 20  # over all combinations of lists that are tried on a window
_LOST_ROW, _REJECTED_ROW = 1, 2  # what a list costs that does not explain a window


@kernel
def _mix(mark, value):
    """One step of a hash in which every bit of the value reaches every bit of the mark."""
    mark = (mark ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return mark ^ (mark >> np.uint64(32))


@kernel
def _place(keys, key):
    """Where a key stands in a table that begins with -1 everywhere, or would stand."""
    mark = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    k = np.int64(mark >> np.uint64(64 - _TABLE_BITS))
    while keys[k] != key and keys[k] != -1:
        k = (k + 1) % keys.size
    return k


@kernel
def _enter(known, key, slot):
    k = _place(known[0], key)
    known[0, k], known[1, k] = key, slot


@kernel
def _headers(pieces, known, slots, unknown):
    """Writes the slot of every header whose rank and stage are known, -1 elsewhere.

    Args:
        known: (2, n): keys of slots, see `_key`, and the slots.
        unknown: (2, n) out: where the other headers stand, and their keys.

    Returns:
        How many the others are.
    """
    n = 0
    for i in range(pieces.size):
        slots[i] = -1
        if pieces[i].kind == HEADER:
            key = (pieces[i].code << 32) | pieces[i].place
            k = _place(known[0], key)
            if known[0, k] == key:
                slots[i] = known[1, k]
            else:
                unknown[0, n], unknown[1, n] = i, key
                n += 1
    return n


@kernel
def _plain_blocks(pieces, slots, found):
    """Finds the blocks that nobody seems to have written into; how many there are.

    Header and rows stand alone on their lines, all are sound, and no header without rows comes
    before it.

    Args:
        found: (3, n) out: where the header stands, how many rows follow, and a hash of them.
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


def _none_known() -> npt.NDArray[np.int64]:
    return np.full((2, 1 << _TABLE_BITS), -1)


class Owners:
    """Finds the rank of every layer row of one log, given in windows of whole lines."""

    def __init__(self) -> None:
        self._state = no_blocks()
        self._slots: dict[tuple[int, int], int] = {}
        self._known = _none_known()
        self._votes: list[dict[int, tuple[int, Rows]]] = []
        self._chosen: dict[int, Rows] = {}
        self._stages: tuple[int, Mapping[int, tuple[int, ...]]] | None = None
        self._doubted = False

    def stage_ranks(self, line: int, ranks: Mapping[int, tuple[int, ...]]) -> None:
        """Says which ranks each stage has, as printed on that line; the first word counts."""
        if self._stages is None:
            self._stages = (line, ranks)
            self._known = _none_known()
            for pair in self._slots:
                self._know(pair)

    @property
    def blocks(self) -> bool:
        """Whether there was any header."""
        return bool(self._slots)

    @property
    def complete(self) -> bool:
        """Whether every slot printed all its rows in every step, and all the same steps."""
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
        """Owner of every piece that is a layer row; `how` is REJECTED for the others.

        Args:
            pieces: Next window. Kind and reason of what is rejected are written into it.
            embed: Code of the layer before layer 0.
            whole: The window is the whole log.
        """
        slots = self._number(pieces)
        self._learn(pieces, slots)
        chosen = self._choose(pieces, slots, embed)
        out, self._state, _ = self._assign(pieces, slots, embed, chosen)
        if whole:
            self._doubted = doubt(pieces, out)
        return out

    def _number(self, pieces: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """Slot of every header, -1 elsewhere; a header whose rank is not its stage's turns bad."""
        slots = np.empty(pieces.size, np.int64)
        unknown = np.empty((2, pieces.size), np.int64)
        count = _headers(pieces, self._known, slots, unknown)
        if count:
            self._meet(pieces, unknown[0, :count], unknown[1, :count], slots)
        return slots

    def _meet(
        self,
        pieces: npt.NDArray[np.void],
        headers: npt.NDArray[np.int64],
        keys: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
    ) -> None:
        """Gives slots to headers of unknown ranks and stages, unless these do not belong together.

        Args:
            headers: Their places among the pieces.
            keys: Of their ranks and stages.
            slots: Filled in for them.
        """
        distinct, where = _distinct(keys)
        pairs = [(key >> 32, key & 0xFFFFFFFF) for key in distinct.tolist()]
        foreign = np.zeros(headers.size, np.bool_)
        if self._stages is not None:
            strange = np.array([not self._belong(*pair) for pair in pairs])
            foreign = strange[where] & (pieces["line"][headers] > self._stages[0])
        used = np.bincount(where[~foreign], minlength=len(pairs)).tolist()
        for pair in sorted(pair for pair, count in zip(pairs, used, strict=True) if count):
            if len(self._slots) < SLOT_LIMIT and pair not in self._slots:
                self._slots[pair] = len(self._slots)
                self._votes.append({})
                self._know(pair)
        numbers = np.array([self._slots.get(pair, -1) for pair in pairs], np.int64)[where]
        foreign |= numbers < 0
        pieces["kind"][headers[foreign]] = BAD
        pieces["reason"][headers[foreign]] = FOREIGN
        slots[headers[~foreign]] = numbers[~foreign]

    def _belong(self, rank: int, stage: int) -> bool:
        """Whether the rank may be one of the stage, by what the log says of stages so far."""
        return self._stages is None or rank in self._stages[1].get(stage, ())

    def _know(self, pair: tuple[int, int]) -> None:
        """From here on headers of this rank and stage find their slot, whatever their line."""
        if self._belong(*pair):
            rank, stage = pair
            _enter(self._known, (rank << 32) | stage, self._slots[pair])

    def _learn(self, pieces: npt.NDArray[np.void], slots: npt.NDArray[np.int64]) -> None:
        """Counts the lists of plain blocks; of each slot the most frequent ones are remembered."""
        found = np.empty((3, pieces.size), np.int64)
        count = _plain_blocks(pieces, slots, found)
        headers, rows, marks = found[:, :count]
        unique, where = _distinct(marks)
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
        """Lists that the slot may have, by votes: not the rare of many, and of few any in order."""
        if slot in self._chosen:
            return [self._chosen[slot]]
        votes = list(self._votes[slot].values())
        if votes and votes[0][0] >= _MANY_VOTES:
            return [rows for count, rows in votes if _RARE * count >= votes[0][0]]
        return [rows for _, rows in votes if _ascends(rows, embed)]

    def _choose(
        self, pieces: npt.NDArray[np.void], slots: npt.NDArray[np.int64], embed: int
    ) -> list[Rows | int]:
        """List of every slot, UNKNOWN, or CONTESTED where several explain the window as well.

        Of slots with several candidates every combination is tried, up to a limit; of those that
        leave as little unexplained, the ones whose layers ascend from stage to stage.
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
        """Slots of neighbouring stages of which the upper begins before the lower ends."""
        bounds = []
        for (_, stage), slot in self._slots.items():
            rows = chosen[slot]
            if not isinstance(rows, int):
                order = _order(rows, embed)
                bounds.append((stage, int(order[0]), int(order[-1]), slot))
        pairs = itertools.pairwise(sorted(bounds))
        return [(below[3], above[3]) for below, above in pairs if below[2] > above[1]]

    def _distrust(self, chosen: list[Rows | int], embed: int) -> None:
        """Of two stages out of order, the list that few blocks speak for is not believed."""
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
        """Owners, the state behind the window, and what the lists leave unexplained."""
        rows = [lists for lists in chosen if not isinstance(lists, int)]
        size = np.array([x if isinstance(x, int) else x.shape[0] for x in chosen], np.int64)
        flat = np.concatenate([np.empty((0, 2), np.int64), *rows])
        start = np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0)
        stage = np.array([stage for _, stage in self._slots], np.int64)
        lists = Lists(stage, start, size, flat[:, 0].copy(), flat[:, 1].copy())
        state = with_slots(self._state, size.size)
        out = np.empty(pieces.size, OWNER)
        assign(pieces, slots, embed, lists, state, out)
        cost = _REJECTED_ROW * _rejected(pieces, out) + _LOST_ROW * int(state.book[MISSING])
        return out, state, cost


def _layer_rows(pieces: npt.NDArray[np.void], first: int, count: int) -> Rows:
    """The first so many layer rows from a piece on."""
    stop = first + count
    while np.count_nonzero(pieces["kind"][first:stop] == LAYER) < count:
        stop += 1
    rows = pieces[first:stop][pieces["kind"][first:stop] == LAYER]
    return np.stack([rows["code"], rows["count"]], axis=1)


def _distinct(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Distinct values in order of appearance, and for each value which of them it is."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def _order(rows: Rows, embed: int) -> Rows:
    """Places of the layers in the model; those without a number share the last."""
    return np.where(rows[:, 0] == embed, -1, np.minimum(rows[:, 0], NAME_BASE))


def _ascends(rows: Rows, embed: int) -> bool:
    order = _order(rows, embed)
    return bool(((np.diff(order) > 0) | (order[1:] == NAME_BASE)).all())
