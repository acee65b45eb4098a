"""Read blocks of rank traces into record batches; memory is bounded whatever the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.ledger import NOT_UTF8, Fault, Ledger, Severity
from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.batches import Numbering, Texts, Unmade, build
from tracelake.formats.rank_trace.facts import Observed
from tracelake.formats.rank_trace.held import held
from tracelake.formats.rank_trace.layout import Lines, Rows, State, Words, nothing_latest
from tracelake.formats.rank_trace.records import MIN_SUB_OPERATION, read_lines
from tracelake.formats.rank_trace.rows import new_repeats
from tracelake.formats.rank_trace.steps import PHASES, enlarged, new_book, number_ops, ranks
from tracelake.kernels.numbers import NULL, Bytes, Longs
from tracelake.kernels.tokens import TokenTable

BATCH_ROWS = 1 << 16
"""Rows of a table that are collected before they become a batch."""

DECIDE_BYTES = 64 << 20
"""Bytes to look through for the first mark of a step's end before deciding how steps end."""

_BATCH_BYTES = 16 << 20
_FIRST_ROWS = 1 << 12
_MANY_TEXTS = 1 << 14
_REJECTS = 1 << 8
# Number of different operations and phases of a step, and of communications of a layer.
_OPERATIONS, _SUB_OPERATIONS = 32, 16
_NO_REJECTS = np.empty((0, 5), np.int64)


UNKNOWN_DTYPE = Fault(
    "unknown_dtype",
    Severity.NOTICE,
    "A tensor has an element type of unknown width; its bytes are NULL.",
)


class Reader:
    """Reads the lines of one run, in order.

    Args:
        stage_of: Stage of a rank whose lines print none.
        ledger: Counts the faults of rows.
        hold: Hold the rows back if they are those of one batch and no line has a fault.

    Attributes:
        held: The rows that were held back; None if they are in batches.
    """

    def __init__(
        self, stage_of: Callable[[int], int | None], ledger: Ledger, *, hold: bool
    ) -> None:
        self.observed = Observed()
        self.held: Unmade | None = None
        self._hold = hold
        self._stage_of = stage_of
        self._ledger = ledger
        fixed = layout.OPS, layout.KEYS, layout.TEXTS
        self._names, self._keys, self._texts = map(TokenTable, fixed)
        self._latest = nothing_latest()
        self._lines = _new_lines()
        self._whole, self._parts = new_repeats(_OPERATIONS), new_repeats(_SUB_OPERATIONS)
        self._ops, self._comms = _new_rows(layout.OP_WIDE), _new_rows(layout.COMM_WIDE)
        self._book = new_book(1 << 6)
        self._marked: bool | None = None
        self._ready: list[Sequence[pa.RecordBatch]] = []

    def feed(self, data: Bytes, ends: Longs, spans: Longs) -> tuple[Longs, Longs]:
        """Read whole lines.

        Args:
            ends: Index of each line's end.
            spans: Position of the lines of each source, (span, column of `layout`).

        Returns:
            The accounts of each span and the rejected lines, both (row, column of `layout`).
        """
        counts = np.zeros((len(spans), layout.COUNTS), np.int64)
        lines, rejects, first = self._lines, [], 0
        while first < ends.size:
            first = read_lines(data, ends, first, spans, counts, self._state())
            rejects.append(lines.rejects[: lines.n_rejects[0]].copy())
            lines.n_rejects[0] = 0
            if first < ends.size:
                start = ends[first - 1] + 1 if first else 0
                lines = self._make_room(int(ends[first] - start))
        return counts, np.concatenate([_NO_REJECTS, *rejects])

    def ready(self) -> list[Sequence[pa.RecordBatch]]:
        """Return the batches of `ops` and `comms` made since the last call."""
        made, self._ready = self._ready, []
        return made

    def finish(self) -> dict[int, Longs]:
        """End with the remaining rows; return the row of the `Book` of each rank."""
        self._decide(complete=True)
        self._flush()
        return ranks(self._book)

    def _state(self) -> State:
        return State(
            Words(self._keys.tokens, self._texts.tokens, *self._latest),
            self._names.tokens,
            self._lines,
            self._whole,
            self._parts,
            self._ops,
            self._comms,
        )

    def _make_room(self, length: int) -> Lines:
        """Make space for a line: by a batch if there are enough rows for one, else by growth."""
        more = length // MIN_SUB_OPERATION + 2
        self._decide(complete=False)
        used = np.maximum(self._ops.size, self._comms.size)
        if self._marked is not None and (
            used[layout.ROWS] + more > BATCH_ROWS or used[layout.VALUE_BYTES] > _BATCH_BYTES
        ):
            self._hold = False
            self._flush()
        self._ops = _grown(self._ops, more, length)
        self._comms = _grown(self._comms, more, length)
        for table in (self._names, self._keys, self._texts):
            table.reserve(length)
        if length > self._lines.scratch.size:
            scratch: Bytes = np.empty(2 * length, np.uint8)
            self._lines = self._lines._replace(scratch=scratch)
        return self._lines

    def _decide(self, *, complete: bool) -> None:
        """Decide whether the run marks the ends of its steps, as soon as that is certain."""
        lead, seen = self._lines.lead[layout.LEAD_BYTES], self._lines.lead[layout.MARK_SEEN]
        if self._marked is None and (seen or complete or lead > DECIDE_BYTES):
            self._marked = bool(seen and lead <= DECIDE_BYTES)

    def _flush(self) -> None:
        ops, comms = self._ops, self._comms
        if not ops.size[layout.ROWS]:
            return
        keys, texts = Texts.of(self._keys), Texts.of(self._texts)
        numbering, forwards = self._number(texts)
        self.observed.see(ops, comms, numbering, forwards, texts)
        rows = Unmade(ops, comms, numbering, self._renumbered_names(), keys, texts)
        self.held = held(rows) if self._hold else None
        if self.held is None:
            *batches, not_utf8, unknown = build(rows)
            self._ready.append(batches)
            self._report(NOT_UTF8, not_utf8)
            self._report(UNKNOWN_DTYPE, unknown)
        ops.size[:] = comms.size[:] = 0
        if len(self._texts) + len(self._keys) > _MANY_TEXTS:
            self._texts.clear()
            self._keys.clear()
            self._latest = nothing_latest()

    def _report(self, fault: Fault, rows: Longs) -> None:
        """Count a fault of rows of `ops`, by source."""
        wide = self._ops.wide[:, rows]
        found = np.unique(wide[layout.SOURCE], return_index=True, return_counts=True)
        for source, first, count in zip(*found, strict=True):
            line = int(wide[layout.LINE, first])
            self._ledger.fault(int(source), fault, line=line, count=int(count))

    def _renumbered_names(self) -> Texts:
        """Return names of the operations that have rows; renumber their ids.

        The table of names grows with the run, so a batch must not process all of it.
        """
        ids = self._ops.ids[layout.OP, : self._ops.size[layout.ROWS]]
        seen = np.zeros(len(self._names), np.bool_)
        seen[ids] = True
        found = np.flatnonzero(seen)
        places = np.empty(seen.size, np.int32)
        places[found] = np.arange(found.size, dtype=np.int32)
        ids[:] = places[ids]
        return Texts.of(self._names, found.tolist())

    def _number(self, texts: Texts) -> tuple[Numbering, npt.NDArray[np.int32]]:
        n = int(self._ops.size[layout.ROWS])
        wide, ids = self._ops.wide, self._ops.ids
        rank, stage = wide[layout.RANK, :n], wide[layout.OP_STAGE, :n].copy()
        missing = stage == NULL
        without, places = np.unique(rank[missing], return_inverse=True)
        known = (self._stage_of(one) for one in without.tolist())
        stage[missing] = np.array([NULL if s is None else s for s in known], np.int64)[places]
        several = n if rank.min() < rank.max() else 1
        self._book = enlarged(self._book, min(2 * n, several * (len(self._names) + 1)))
        phases = np.array([PHASES.index(t) if t in PHASES else -1 for t in texts.names], np.int8)
        step, micro_batch, forwards = (np.empty(n, np.int32) for _ in range(3))
        seq = np.empty(n, np.int64)
        number_ops(
            rank,
            ids[layout.OP, :n],
            phases[ids[layout.OP_PHASE, :n]],
            wide[layout.OP_BATCH, :n],
            wide[layout.START, :n],
            wide[layout.END, :n],
            bool(self._marked),
            self._book,
            step,
            seq,
            micro_batch,
            forwards,
        )
        return Numbering(stage, step, seq, micro_batch), forwards


def _new_lines() -> Lines:
    return Lines(
        rejects=np.zeros((_REJECTS, _NO_REJECTS.shape[1]), np.int64),
        n_rejects=np.zeros(1, np.int64),
        lead=np.zeros(2, np.int64),
        place=np.zeros(3, np.int64),
        saved=np.zeros(8, np.int64),
        scratch=np.empty(_FIRST_ROWS, np.uint8),
    )


def _new_rows(wide: int) -> Rows:
    n = _FIRST_ROWS
    return Rows(
        wide=np.empty((wide, n), np.int64),
        ids=np.empty((layout.IDS, n), np.int32),
        shapes=np.empty(n, np.int64),
        keys=np.empty(n, np.int32),
        ends=np.empty(n, np.int64),
        values=np.empty(n, np.uint8),
        size=np.zeros(4, np.int64),
    )


def _grown(rows: Rows, more: int, length: int) -> Rows:
    """Return the rows with space for more rows, and for `length` bytes of details."""
    larger: dict[str, Any] = {}
    for name, by in layout.COUNTED.items():
        array, used = getattr(rows, name), rows.size[by]
        needed = used + (more if by == layout.ROWS else length)
        if needed > array.shape[-1]:
            larger[name] = np.empty((*array.shape[:-1], 2 * needed), array.dtype)
            larger[name][..., :used] = array[..., :used]
    return rows._replace(**larger)
