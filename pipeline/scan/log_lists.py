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
def _headers(pieces, places, both):
    """Writes where the headers stand and their rank and stage as one number; how many there are."""
    n = 0
    for i in range(pieces.size):
        if pieces[i].kind == HEADER:
            places[n], both[n] = i, (pieces[i].code << 32) | pieces[i].place
            n += 1
    return n


@kernel
def _plain_blocks(pieces, slots, rows, marks):
    """Number of rows and a hash of every block that nobody seems to have written into, else 0.

    Its header and rows stand alone on their lines, all are sound, and no header without rows comes
    before it.
    """
    before = LAYER
    k = 0
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
        if good and (k == pieces.size or pieces[k].kind == HEADER):
            rows[i], marks[i] = count, mark


class Owners:
    """Finds the rank of every layer row of one log, given in windows of whole lines."""

    def __init__(self) -> None:
        self._state = no_blocks()
        self._slots: dict[tuple[int, int], int] = {}
        self._votes: list[dict[int, tuple[int, Rows]]] = []
        self._chosen: dict[int, Rows] = {}
        self._stages: tuple[int, Mapping[int, tuple[int, ...]]] | None = None
        self._doubted = False

    def stage_ranks(self, line: int, ranks: Mapping[int, tuple[int, ...]]) -> None:
        """Says which ranks each stage has, as printed on that line; the first word counts."""
        self._stages = self._stages or (line, ranks)

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
        places, both = np.empty((2, pieces.size), np.int64)
        count = _headers(pieces, places, both)
        headers = places[:count]
        pairs, where = _distinct(both[:count])
        keys = [(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist()]
        foreign = np.zeros(headers.size, np.bool_)
        if self._stages is not None:
            line, ranks = self._stages
            strange = np.array([rank not in ranks.get(stage, ()) for rank, stage in keys], np.bool_)
            foreign = strange[where] & (pieces["line"][headers] > line)
        used = np.bincount(where[~foreign], minlength=len(keys)).tolist()
        for key in sorted(key for key, count in zip(keys, used, strict=True) if count):
            if len(self._slots) < SLOT_LIMIT:
                self._slots.setdefault(key, len(self._slots))
        numbers = np.array([self._slots.get(key, -1) for key in keys], np.int64)[where]
        foreign |= numbers < 0
        pieces["kind"][headers[foreign]] = BAD
        pieces["reason"][headers[foreign]] = FOREIGN
        self._votes.extend({} for _ in range(len(self._votes), len(self._slots)))
        self._state = with_slots(self._state, len(self._slots))
        slots = np.full(pieces.size, -1, np.int64)
        slots[headers[~foreign]] = numbers[~foreign]
        return slots

    def _learn(self, pieces: npt.NDArray[np.void], slots: npt.NDArray[np.int64]) -> None:
        """Counts the lists of plain blocks; of each slot the most frequent ones are remembered."""
        rows = np.zeros(pieces.size, np.int64)
        marks = np.zeros(pieces.size, np.uint64)
        _plain_blocks(pieces, slots, rows, marks)
        plain = np.flatnonzero(rows)
        unique, where = _distinct(marks[plain].view(np.int64))
        first = np.empty(unique.size, np.int64)
        first[where[::-1]] = plain[::-1]
        touched = set()
        for mark, header, count in zip(
            unique.tolist(), first.tolist(), np.bincount(where).tolist(), strict=True
        ):
            votes = self._votes[slots[header]]
            touched.add(int(slots[header]))
            if mark in votes:
                votes[mark] = (votes[mark][0] + count, votes[mark][1])
                continue
            votes[mark] = (count, _layer_rows(pieces, header + 1, int(rows[header])))
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
        out = np.zeros(pieces.size, OWNER)
        assign(pieces, slots, embed, lists, state, out)
        rejected = (pieces["kind"] == LAYER) & (out["how"] == REJECTED)
        cost = _REJECTED_ROW * np.count_nonzero(rejected) + _LOST_ROW * state.book[MISSING]
        return out, state, int(cost)


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
