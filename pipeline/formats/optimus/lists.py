"""Learn the rows that each rank of a pipeline-training log prints in every step.

A slot is a rank on a stage that prints blocks. Its list is learned from blocks that no other rank
wrote into, anywhere in the window, and stored for later windows.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from tracelake.formats.optimus import owners, scan
from tracelake.kernels.compiled import inlined, kernel
from tracelake.kernels.numbers import Longs

_SLOT_LIMIT = 1 << 14
_CANDIDATES = 8  # number of lists stored per slot
_MANY_VOTES, _RARE = 8, 2
_TRIAL_PIECES = 1 << 20  # maximum number of combinations of lists to try on a window
_UNSEEN_ROW, _REJECTED_ROW = 1, 2  # cost of a list that does not explain a window
_ENOUGH_STEPS = 32  # more than the profiler prints by default

_STAGE_BITS = 32  # the key of a slot is its rank, then its stage
_SEED = 0xCBF29CE484222325  # of a hash

# Columns of blocks that no other rank wrote into: alike ones of a slot in a row are one.
_HEADER, _STOP, _MARK, _BLOCKS = range(4)


@inlined
def _mix(mark: np.uint64, value: int) -> np.uint64:
    """Return one step of a hash in which every bit of the value reaches every bit of the mark."""
    mark = (mark ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return mark ^ (mark >> np.uint64(32))


@kernel
def _plain_blocks(pieces: Longs, latest: Longs, found: Longs) -> int:
    """Find the blocks that no other rank seems to have written into; return their number.

    Header and rows are alone on their lines, all are valid, and no header without rows precedes
    it.

    Args:
        latest: The latest one found of each slot, -1 before.
        found: Out: index of the header and behind the rows, a hash of these, number of blocks.
    """
    before = scan.LAYER
    n, header, rows, good = 0, 0, 0, False
    mark = np.uint64(_SEED)
    for i in range(pieces.shape[1] + 1):
        kind = pieces[scan.KIND, i] if i < pieces.shape[1] else scan.HEADER
        if kind == scan.HEADER:
            if good and rows:
                slot = pieces[scan.SLOT, header]
                if latest[slot] >= 0 and found[latest[slot], _MARK] == np.int64(mark):
                    found[latest[slot], _BLOCKS] += 1
                else:
                    found[n, _HEADER], found[n, _STOP] = header, i
                    found[n, _MARK], found[n, _BLOCKS] = np.int64(mark), 1
                    latest[slot] = n
                    n += 1
            good = before != scan.HEADER
            header, rows, mark = i, 0, np.uint64(_SEED)
        if kind != scan.RECORD and i < pieces.shape[1]:
            good &= kind != scan.BAD and pieces[scan.FATE, i] == scan.BLOCK
            before = kind
            if kind == scan.LAYER:
                rows += 1
                mark = _mix(_mix(mark, pieces[scan.CODE, i]), pieces[scan.CALLS, i])
    return n


class Owners:
    """Finds the rank of every layer row of one log, given in windows of whole lines.

    Attributes:
        stages: The ranks of each stage, and the line that says them, where one was read.
    """

    def __init__(self) -> None:
        self.stages: tuple[int, Mapping[int, tuple[int, ...]]] | None = None
        self._slots: dict[int, int] = {}
        self._votes: list[dict[int, tuple[int, Longs]]] = []
        self._chosen: dict[int, Longs] = {}
        self._state = np.empty((0, owners.LAST_STEP + 1), np.int64)
        self._opened = np.zeros((owners.OPEN_LIMIT, owners.WAITING + 1), np.int64)
        self._book = np.zeros(owners.BOOK, np.int64)
        self._book[owners.TRUST] = True
        self._doubted = False

    @property
    def blocks(self) -> bool:
        """Tell whether there was any header."""
        return bool(self._slots)

    @property
    def complete(self) -> bool:
        """Tell whether every slot printed all its rows in every step, and all the same steps."""
        steps = self._state[:, owners.FIRST_STEP :]
        return (
            bool((steps == steps[:1]).all()) and not self._doubted and not self._book[owners.FLAWS]
        )

    def resolve(self, pieces: Longs, *, whole: bool = False) -> None:
        """Write the owner of every layer row of a window into it, and the fate of each piece.

        Args:
            pieces: Next window.
            whole: The window is the whole log.
        """
        self._number(pieces)
        self._learn(pieces)
        made = self._assigned(pieces, self._choose(pieces))
        self._state, self._opened, self._book = made.slots, made.opened, made.book
        if whole:
            self._doubted = _doubt(pieces)

    def _number(self, pieces: Longs) -> None:
        """Write the slot of every header; reject ranks of other stages."""
        headers = np.flatnonzero(pieces[scan.KIND] == scan.HEADER)
        keys = (pieces[scan.RANK, headers] << _STAGE_BITS) | pieces[scan.STAGE, headers]
        found = np.unique(keys)
        where = np.searchsorted(found, keys)
        foreign = np.zeros(headers.size, np.bool_)
        if self.stages is not None:
            line, ranks = self.stages
            pairs = [divmod(key, 1 << _STAGE_BITS) for key in found.tolist()]
            strange = [rank not in ranks.get(stage, ()) for rank, stage in pairs]
            foreign = np.array(strange, np.bool_)[where] & (pieces[scan.LINE, headers] > line)
        for key in np.unique(keys[~foreign]).tolist():
            if len(self._slots) < _SLOT_LIMIT and key not in self._slots:
                self._slots[key] = len(self._slots)
                self._votes.append({})
        slots = np.array([self._slots.get(key, -1) for key in found.tolist()], np.int64)[where]
        foreign |= slots < 0
        pieces[scan.SLOT, headers] = slots
        pieces[scan.KIND, headers[foreign]] = scan.BAD
        pieces[scan.FATE, headers[foreign]] = owners.FOREIGN

    def _learn(self, pieces: Longs) -> None:
        """Count the lists of plain blocks; store the most frequent ones of each slot."""
        headers = np.count_nonzero(pieces[scan.KIND] == scan.HEADER)
        found = np.empty((headers, _BLOCKS + 1), np.int64)
        count = _plain_blocks(pieces, np.full(len(self._votes), -1), found)
        for header, stop, mark, blocks in found[:count].tolist():
            votes = self._votes[int(pieces[scan.SLOT, header])]
            before, rows = votes.get(mark) or (0, _rows_of(pieces[:, header:stop]))
            votes[mark] = before + blocks, rows
        for slot, votes in enumerate(self._votes):
            ranked = sorted(votes.items(), key=lambda vote: -vote[1][0])
            self._votes[slot] = dict(ranked[:_CANDIDATES])

    def _candidates(self, slot: int) -> list[Longs]:
        """Return possible lists of the slot by votes; rare ones are left out if many vote."""
        if slot in self._chosen:
            return [self._chosen[slot]]
        votes = list(self._votes[slot].values())
        if votes and votes[0][0] >= _MANY_VOTES:
            return [rows for count, rows in votes if _RARE * count >= votes[0][0]]
        return [rows for _, rows in votes if _ascends(rows)]

    def _choose(self, pieces: Longs) -> list[Longs | int]:
        """Return the list of every slot, UNKNOWN, or CONTESTED if several fit equally.

        If slots have several candidates, every combination is tried, up to a limit. Of equally good
        ones, those whose layers ascend from stage to stage are chosen.
        """
        candidates = [self._candidates(slot) for slot in range(len(self._votes))]
        chosen: list[Longs | int] = [
            lists[0] if len(lists) == 1 else owners.CONTESTED if lists else owners.UNKNOWN
            for lists in candidates
        ]
        trials = 1
        tried = []
        for slot, lists in enumerate(candidates):
            if len(lists) > 1 and trials * len(lists) * pieces.shape[1] <= _TRIAL_PIECES:
                trials *= len(lists)
                tried.append(slot)
        costs: dict[tuple[int, ...], tuple[int, int]] = {}
        for trial in itertools.product(*(range(len(candidates[slot])) for slot in tried)):
            for slot, k in zip(tried, trial, strict=True):
                chosen[slot] = candidates[slot][k]
            if tried:
                costs[trial] = self._cost(pieces, chosen), len(_disorder(chosen))
        best = [trial for trial, cost in costs.items() if cost == min(costs.values())]
        for k, slot in enumerate(tried):
            left = [candidates[slot][j] for j in sorted({trial[k] for trial in best})]
            if all(
                np.array_equal(rows[:, owners.LIST_CODE], left[0][:, owners.LIST_CODE])
                for rows in left
            ):
                chosen[slot] = self._chosen[slot] = left[0]
            else:
                chosen[slot] = owners.CONTESTED
        self._distrust(chosen)
        return chosen

    def _distrust(self, chosen: list[Longs | int]) -> None:
        """Discard, of two stages out of order, the list with fewer blocks as evidence."""
        disorder = _disorder(chosen)
        votes = {
            slot: sum(count for count, rows in self._votes[slot].values() if rows is chosen[slot])
            for slot in itertools.chain(*disorder)
        }
        for pair in disorder:
            fewest = min(votes[slot] for slot in pair)
            for slot in pair:
                if votes[slot] == fewest < _MANY_VOTES:
                    chosen[slot] = owners.CONTESTED
                    self._chosen.pop(slot, None)

    def _assigned(self, pieces: Longs, chosen: list[Longs | int]) -> owners.Work:
        """Assign the rows by these lists; return the state after the window."""
        size = np.array([x if isinstance(x, int) else len(x) for x in chosen], np.int64)
        rows = [x for x in chosen if not isinstance(x, int)]
        slots = np.full((size.size, owners.LAST_STEP + 1), -1)
        slots[: len(self._state)] = self._state
        used = np.maximum(size, 0)
        slots[:, owners.LIST_START], slots[:, owners.LIST_SIZE] = np.cumsum(used) - used, size
        work = owners.Work(
            pieces,
            slots,
            np.concatenate([np.empty((0, 3), np.int64), *rows]),
            self._opened.copy(),
            self._book.copy(),
        )
        owners.assign(work)
        return work

    def _cost(self, pieces: Longs, chosen: list[Longs | int]) -> int:
        """Return how much of a window the lists do not explain."""
        fates = pieces[scan.FATE].copy()
        made = self._assigned(pieces, chosen)
        rejected = (pieces[scan.KIND] == scan.LAYER) & (pieces[scan.FATE] >= 0)
        pieces[scan.FATE] = fates
        unseen = int(made.book[owners.UNSEEN])
        return _REJECTED_ROW * int(np.count_nonzero(rejected)) + _UNSEEN_ROW * unseen


def _rows_of(block: Longs) -> Longs:
    """Return code, calls and stage of the layer rows of a block, given with its header."""
    rows = block[:, block[scan.KIND] == scan.LAYER]
    stage = np.full(rows.shape[1], block[scan.STAGE, 0])
    return np.column_stack([rows[scan.CODE], rows[scan.CALLS], stage])


def _disorder(chosen: list[Longs | int]) -> list[tuple[int, int]]:
    """Return slots of neighbouring stages whose layers overlap in the wrong order."""
    bounds = sorted(
        (rows[0, owners.LIST_STAGE], *np.minimum(rows[[0, -1], owners.LIST_CODE], scan.NAMED), slot)
        for slot, rows in enumerate(chosen)
        if not isinstance(rows, int)
    )
    pairs = itertools.pairwise(bounds)
    return [(below[3], above[3]) for below, above in pairs if below[2] > above[1]]


def _ascends(rows: Longs) -> bool:
    order = np.minimum(rows[:, owners.LIST_CODE], scan.NAMED)
    return bool(((np.diff(order) > 0) | (order[1:] == scan.NAMED)).all())


def _doubt(pieces: Longs) -> bool:
    """Reject rows of a log that its other steps do not confirm; return whether there were any.

    In a log of few steps the list of a rank comes from few blocks, and may be wrong.
    From where ranks first wrote over each other, a row that is not known by its place stays only if
    its rank prints the same layer with the same number of calls in another step, and no other rank
    ever does; or if ranks wrote its step one after the other, and another one alike.
    """
    rows = np.flatnonzero(pieces[scan.KIND] == scan.LAYER)
    disorder = np.flatnonzero(pieces[scan.FATE, rows] != scan.BLOCK)
    given = rows[pieces[scan.FATE, rows] < 0]
    if not disorder.size or np.unique(pieces[scan.STEP, given]).size >= _ENOUGH_STEPS:
        return False
    seen: defaultdict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    columns = [scan.CODE, scan.CALLS, scan.RANK, scan.STAGE, scan.STEP]
    for code, calls, *owner in pieces[:, given][columns].T.tolist():
        seen[code, calls].add(tuple(owner))
    confirmed = {
        row
        for row, printed in seen.items()
        if len(printed) > 1 and len({owner[:2] for owner in printed}) == 1
    }
    steps = _plain_steps(pieces)
    doubted = [
        i
        for i in rows[disorder[0] :].tolist()
        if scan.BY_PLACE < pieces[scan.FATE, i] < 0
        and pieces[scan.STEP, i] not in steps
        and tuple(pieces[[scan.CODE, scan.CALLS], i].tolist()) not in confirmed
    ]
    pieces[scan.FATE, doubted] = owners.AMBIGUOUS
    return bool(doubted)


def _plain_steps(pieces: Longs) -> set[int]:
    """Return the steps in which each row follows the header of its rank, alike in two of them."""
    printed: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    torn, header = set[int](), [0, 0, 0]
    columns = [scan.KIND, scan.FATE, scan.STEP, scan.RANK, scan.STAGE, scan.CODE, scan.CALLS]
    for kind, fate, *row in pieces[columns].T.tolist():
        if kind == scan.HEADER:
            header = row[:3]
        elif kind == scan.LAYER:
            if fate != scan.BLOCK or row[:3] != header:
                torn |= {row[0], header[0]}
            printed[row[0]].append(tuple(row[1:]))
    alike = Counter(map(tuple, printed.values()))
    return {step for step, rows in printed.items() if alike[tuple(rows)] > 1} - torn
