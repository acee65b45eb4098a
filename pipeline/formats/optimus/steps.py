"""Process the lines of a pipeline-training log: repeats of a step, lines by outcome."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.blocks import REJECTED
from tracelake.formats.optimus.lines import BAD, HEADER, LAYER
from tracelake.kernels.compiled import kernel

RECENT = 1 << 12
_FLOAT = re.compile(rb"-?(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?")
_FLOAT_BYTES = 4096


class Recent(NamedTuple):
    """The latest RECENT distinct (epoch, step) and how often each was repeated.

    Attributes:
        total: Number of distinct ones, and the highest epoch and step.
    """

    seen: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]


def recent() -> Recent:
    """Return an empty state."""
    return Recent(np.zeros((RECENT, 3), np.int64), np.array([0, -1, -1]))


@kernel
def number_copies(
    records: npt.NDArray[np.void], seen: Recent, copies: npt.NDArray[np.int32]
) -> None:
    """Write for each progress record how often its epoch and step came before it."""
    table, total = seen.seen, seen.total
    for i in range(records.size):
        epoch, step = records[i].epoch, records[i].step
        copies[i] = 0
        k = total[0] - 1
        oldest = max(0, total[0] - RECENT)
        if (epoch, step) > (total[1], total[2]):  # higher than any: cannot be a repeat
            k = oldest - 1
            total[1], total[2] = epoch, step
        while k >= oldest and not (table[k % RECENT, 0] == epoch and table[k % RECENT, 1] == step):
            k -= 1
        if k >= oldest:
            table[k % RECENT, 2] += 1
            copies[i] = table[k % RECENT, 2]
        else:
            k = total[0] % RECENT
            table[k, 0], table[k, 1], table[k, 2] = epoch, step, 0
            total[0] += 1


def exact_floats(data: npt.NDArray[np.uint8], records: npt.NDArray[np.void]) -> None:
    """Read floats with too many digits for the kernel; Python prints up to 309 before the point."""
    for value in ("lr", "loss", "ppl"):
        for i in np.flatnonzero(records[f"{value}_text"] >= 0).tolist():
            start = int(records[f"{value}_text"][i])
            text = data[start : start + _FLOAT_BYTES].tobytes()
            records[value][i] = float(_FLOAT.findall(text)[0])


def window_size(
    pieces: npt.NDArray[np.void],
    details: npt.NDArray[np.void],
    end: int,
    limits: tuple[int, int],
    *,
    last: bool,
) -> int:
    """Return pieces of the next complete window; 0 while the file may still add to it.

    The content of a window depends on the file alone, not on its blocks.

    Args:
        limits: Maximum number of pieces, and of bytes of the file.
    """
    most_pieces, most_bytes = limits
    starts = details["start"][:most_pieces]
    limit = int(np.searchsorted(starts, starts[0] + most_bytes, "right"))
    if limit == pieces.size and end - starts[0] <= most_bytes:
        return pieces.size if last else 0
    return int(_window_end(pieces, limit))


@kernel
def _window_end(pieces, limit):
    """Return where to cut a window of up to `limit` pieces: before a header, else before a line.

    A header that directly follows another is not cut off from it; a line is never cut.
    """
    before_line = 0
    for k in range(limit - 1, 0, -1):
        if pieces[k].line != pieces[k - 1].line:
            if pieces[k].kind == HEADER and pieces[k - 1].kind != HEADER:
                return k
            before_line = max(before_line, k)
    while before_line == 0 or (
        before_line < pieces.size and pieces[before_line].line == pieces[before_line - 1].line
    ):
        before_line += 1
    return before_line


@kernel
def tally_lines(
    pieces: npt.NDArray[np.void], owners: npt.NDArray[np.void], rejects: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """Count whole lines by outcome: with a row, with headers only, rejected.

    `rejects` takes the first rejected piece of each rejected line.
    """
    rows = context = rejected = 0
    i = 0
    while i < pieces.size:
        line = pieces[i].line
        bad = -1
        row = False
        while i < pieces.size and pieces[i].line == line:
            kind = pieces[i].kind
            if kind == BAD or (kind == LAYER and owners[i].how == REJECTED):
                bad = i if bad < 0 else bad
            else:
                row |= kind != HEADER
            i += 1
        if bad >= 0:
            rejects[rejected] = bad
            rejected += 1
        else:
            rows += row
            context += not row
    return rows, context, rejected
