"""Read the layer rows of workload plans.

A plan repeats itself: the same few lines for every layer and micro-batch. So of many lines only
those that differ are read, and every line points to what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.kernels.arrow import Mask, not_utf8, pieces, text_of
from tracelake.kernels.numbers import Bytes, Longs, byte_set

FIELDS = 12
"""Fields of a layer row; more are extensions."""

LAYER, BLANK, TOO_FEW_FIELDS, SEVERAL_ROWS, BAD_NUMBER = range(5)
"""Kinds of lines: a layer, a blank line, and reasons to reject one."""

_MOST_FIELDS = 2 * FIELDS - 1
_MOST_DIGITS = 19
_MOST = np.uint64((1 << 63) - 1)
# Places of fields in a row, some by pass: forward, input_grad, weight_grad.
_NAME, _DEPENDENCY = 0, 1
_COMMS = (3, 6, 9)
_NUMBERS = (_DEPENDENCY, 2, 4, 5, 7, 8, 10, 11)  # then time and size by pass, and the update
_NO_DEPENDENCY = "-1"
_MINUS, _ONE = _NO_DEPENDENCY.encode()
_IS_BLANK, _IS_DIGIT = byte_set(b"\t\n\v\f\r "), byte_set(b"0123456789")


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of different lines: n names, and 3 n values by pass.

    Attributes:
        attributes: The fields that are no column, and a dependency, as written.
        utf8: Whether the line is UTF-8; other bytes are escaped.
    """

    name: pa.DictionaryArray
    compute_ns: Longs
    comm: pa.DictionaryArray
    size: Longs
    update_ns: Longs
    attributes: Sequence[dict[str, str] | None]
    utf8: Mask


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines of a plan.

    Attributes:
        kind: What each line is, see `LAYER`.
        which: For each line of a layer, its index in `layers`.
    """

    kind: npt.NDArray[np.int8]
    which: Longs
    layers: Layers


def read_lines(data: Bytes, starts: Longs, *, customized: bool) -> Lines:
    """Read lines.

    Args:
        data: Text with the lines and their ends.
        starts: Index of each line's first byte, and behind them the end of the last.
        customized: Each row ends in a policy of its own.
    """
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(data)]
    lines = pa.Array.from_buffers(pa.large_binary(), starts.size - 1, buffers).dictionary_encode()
    kinds, layers = _read(lines.dictionary, customized=customized)
    where = lines.indices.to_numpy()
    kind = kinds[where]
    return Lines(kind, (np.cumsum(kinds == LAYER) - 1)[where[kind == LAYER]], layers)


def _read(lines: pa.LargeBinaryArray, *, customized: bool) -> tuple[npt.NDArray[np.int8], Layers]:
    """Return what each line is, and the layers among them."""
    fields = _Fields(lines)
    kinds = np.full(len(lines), LAYER, np.int8)
    kinds[fields.count > _MOST_FIELDS] = SEVERAL_ROWS
    kinds[fields.count < FIELDS + customized] = TOO_FEW_FIELDS
    kinds[fields.count == 0] = BLANK
    rows = np.flatnonzero(kinds == LAYER)
    good, numbers = fields.numbers(rows)
    kinds[rows[~good]] = BAD_NUMBER
    rows = rows[good]
    return kinds, Layers(
        fields.texts(rows, [_NAME]),
        numbers[:, 1:7:2].ravel(),
        fields.texts(rows, _COMMS),
        numbers[:, 2:8:2].ravel(),
        numbers[:, 7],
        fields.attributes(rows, customized=customized),
        fields.are_utf8(rows),
    )


class _Fields:
    """The fields of lines, which the simulator splits at ASCII blanks only.

    Attributes:
        count: How many fields each line has.
    """

    def __init__(self, lines: pa.LargeBinaryArray) -> None:
        _, offsets, text = lines.buffers()
        self._lines = lines
        self._starts = np.frombuffer(offsets, np.int64)[: len(lines) + 1]
        self._text = np.frombuffer(text or b"", np.uint8)[: self._starts[-1]]
        blank = np.concatenate([[True], _IS_BLANK[self._text], [True]])
        self._edges = np.flatnonzero(blank[1:] != blank[:-1])  # of fields, begin and end in turn
        first = np.searchsorted(self._edges[::2], self._starts)
        self._first, self.count = first[:-1], np.diff(first)

    def _bounds(self, rows: Longs, fields: Sequence[int]) -> tuple[Longs, Longs]:
        """Return begin and end of these fields of rows, shape (rows, fields)."""
        at = 2 * (self._first[rows, None] + np.array(fields))
        return self._edges[at], self._edges[at + 1]

    def _words(self, begin: Longs, end: Longs) -> pa.LargeBinaryArray:
        """Return what lies between these bounds, which rise."""
        both = pieces(self._text, begin, end, pa.large_binary())
        return both.take(pa.array(np.arange(0, len(both), 2)))

    def texts(self, rows: Longs, fields: Sequence[int]) -> pa.DictionaryArray:
        """Return these fields of rows, row by row."""
        words = self._words(*self._bounds(rows, fields)).dictionary_encode()
        texts = pa.array(map(text_of, words.dictionary.to_pylist()), pa.string())
        return texts.take(words.indices).dictionary_encode()  # two words may have the same text

    def numbers(self, rows: Longs) -> tuple[Mask, Longs]:
        """Return which rows have only numbers that fit, and their numbers, (rows, `_NUMBERS`)."""
        begin, end = self._bounds(rows, _NUMBERS)
        begin[:, 0] += self._text[begin[:, 0]] == _MINUS
        others = np.concatenate([[0], np.cumsum(~_IS_DIGIT[self._text])])  # before each byte
        digits = end - begin
        whole = (digits > 0) & (digits <= _MOST_DIGITS) & (others[begin] == others[end])
        good = whole.all(axis=1)
        words = self._words(begin[good], end[good]).cast(pa.large_string())
        values = words.cast(pa.uint64()).to_numpy().reshape(-1, len(_NUMBERS))
        fits = (values <= _MOST).all(axis=1)
        good[good] = fits
        return good, values[fits].astype(np.int64)

    def attributes(self, rows: Longs, *, customized: bool) -> list[dict[str, str] | None]:
        """Return the fields of rows that are no column, and a dependency, as written."""
        (begin,), (end,) = (bound.T for bound in self._bounds(rows, [_DEPENDENCY]))
        depends = (
            (self._text[begin] != _MINUS) | (self._text[begin + 1] != _ONE) | (end - begin > 2)
        )
        found: list[dict[str, str] | None] = [None] * rows.size
        for k in np.flatnonzero(depends | (self.count[rows] > FIELDS)).tolist():
            fields = [text_of(field) for field in self._lines[rows[k]].as_py().split()]
            own = {} if fields[_DEPENDENCY] == _NO_DEPENDENCY else {"dependency": fields[1]}
            for column, field in enumerate(fields[FIELDS:], FIELDS + 1):
                policy = customized and column == FIELDS + 1
                own["policy" if policy else f"column_{column}"] = field
            found[k] = own
        return found

    def are_utf8(self, rows: Longs) -> Mask:
        """Return which rows are UTF-8."""
        return ~np.isin(rows, not_utf8(self._text, self._starts[:-1], self._starts[1:]))
