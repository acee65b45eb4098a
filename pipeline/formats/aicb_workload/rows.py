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
import pyarrow.compute as pc

from tracelake.kernels.arrow import Mask, not_utf8, text_of
from tracelake.kernels.numbers import Bytes, Longs

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
_SIGNS = np.array([n == _DEPENDENCY for n in _NUMBERS])  # how many of each are allowed


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
        self._lines = lines
        # Whether they are UTF-8 does not matter to what is done with them here.
        trimmed = pc.ascii_trim_whitespace(lines.view(pa.large_string()))
        fields = pc.ascii_split_whitespace(trimmed)
        self._words = fields.values
        self._first = fields.offsets.to_numpy()
        self.count = np.diff(self._first) * (pc.binary_length(trimmed).to_numpy() > 0)

    def _of(self, rows: Longs, fields: Sequence[int]) -> pa.LargeStringArray:
        """Return these fields of rows, row by row."""
        return self._words.take(pa.array((self._first[rows, None] + np.array(fields)).ravel()))

    def texts(self, rows: Longs, fields: Sequence[int]) -> pa.DictionaryArray:
        """Return these fields of rows, row by row, as text."""
        words = self._of(rows, fields).view(pa.large_binary()).dictionary_encode()
        texts = pa.array(map(text_of, words.dictionary.to_pylist()), pa.string())
        return texts.take(words.indices).dictionary_encode()  # two words may have the same text

    def numbers(self, rows: Longs) -> tuple[Mask, Longs]:
        """Return which rows have only numbers that fit, and their numbers, (rows, `_NUMBERS`)."""
        words = self._of(rows, _NUMBERS)
        digits = pc.ascii_ltrim(words, "-")
        length, size = (pc.binary_length(text).to_numpy() for text in (digits, words))
        whole = pc.ascii_is_decimal(digits).to_numpy(zero_copy_only=False)
        signs = (size - length).reshape(-1, len(_NUMBERS))
        good = (whole & (length <= _MOST_DIGITS)).reshape(signs.shape).all(axis=1)
        good &= (signs <= _SIGNS).all(axis=1)
        values = digits.filter(pa.array(np.repeat(good, len(_NUMBERS)))).cast(pa.uint64())
        values = values.to_numpy().reshape(-1, len(_NUMBERS))
        fits = (values <= _MOST).all(axis=1)
        good[good] = fits
        return good, values[fits].astype(np.int64)

    def attributes(self, rows: Longs, *, customized: bool) -> list[dict[str, str] | None]:
        """Return the fields of rows that are no column, and a dependency, as written."""
        depends = pc.not_equal(self._of(rows, [_DEPENDENCY]), _NO_DEPENDENCY)
        found: list[dict[str, str] | None] = [None] * rows.size
        for k in np.flatnonzero(np.asarray(depends) | (self.count[rows] > FIELDS)).tolist():
            fields = [text_of(field) for field in self._lines[rows[k]].as_py().split()]
            own = {} if fields[_DEPENDENCY] == _NO_DEPENDENCY else {"dependency": fields[1]}
            for column, field in enumerate(fields[FIELDS:], FIELDS + 1):
                policy = customized and column == FIELDS + 1
                own["policy" if policy else f"column_{column}"] = field
            found[k] = own
        return found

    def are_utf8(self, rows: Longs) -> Mask:
        """Return which rows are UTF-8."""
        _, offsets, text = self._lines.buffers()
        starts = np.frombuffer(offsets, np.int64)[: len(self._lines) + 1]
        data = np.frombuffer(text or b"", np.uint8)[: starts[-1]]
        return ~np.isin(rows, not_utf8(data, starts[:-1], starts[1:]))
