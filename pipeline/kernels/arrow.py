"""Make Arrow arrays from the buffers of kernels, without a Python object per value."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.kernels.compiled import kernel
from tracelake.kernels.numbers import NULL, Bytes, Longs

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

ATTRIBUTES = pa.map_(pa.string(), pa.string())
_ENTRY = pa.struct([ATTRIBUTES.key_field, ATTRIBUTES.item_field])
_SHAPE = pa.list_(pa.int64())
_ALL = np.empty(0, np.int64)


def text_of(raw: bytes) -> str:
    r"""Return bytes as text; those that are not UTF-8 as `\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def is_utf8(raw: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def not_utf8(data: Bytes, starts: Longs, stops: Longs) -> Longs:
    """Return the numbers of the lines that are not UTF-8.

    Args:
        starts: Index of each line's first byte.
        stops: Index behind its last byte.
    """
    bounds = pa.py_buffer(np.array([0, data.size]))
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, bounds, pa.py_buffer(data)])
    try:
        whole.cast(pa.large_utf8())
    except pa.ArrowInvalid:
        high = np.unique(np.searchsorted(starts, np.flatnonzero(data >= 0x80), side="right") - 1)
        wrong = [i for i in high.tolist() if not is_utf8(data[starts[i] : stops[i]].tobytes())]
        return np.array(wrong, np.int64)
    return np.empty(0, np.int64)


def pieces(data: Bytes, starts: Longs, stops: Longs, kind: pa.DataType) -> pa.Array:
    """Return pieces of text without a copy; every other one is what lies between two of them.

    Args:
        starts: Index of each piece's first byte.
        stops: Index behind its last byte, at most that of the next one's first.
        kind: large_utf8 or large_binary.
    """
    bounds = np.stack([starts, stops], axis=-1).ravel()
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, max(0, bounds.size - 1), buffers)


@functools.lru_cache(maxsize=32)
def _nulls(kind: pa.DataType, size: int) -> pa.Array:
    return pa.nulls(size, kind)


def nulls(kind: pa.DataType, size: int) -> pa.Array:
    """Return an array of NULLs; arrays of about the same length share memory."""
    return _nulls(kind, 1 << size.bit_length()).slice(0, size)


def bitmap(valid: Mask) -> pa.Buffer | None:
    """Return the validity bitmap of an Arrow array; None if all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def stored(values: npt.NDArray[np.integer], kind: pa.DataType, given: pa.Buffer | None) -> pa.Array:
    """Return numbers as an Arrow array, NULL where a bit of `given` is 0."""
    return pa.Array.from_buffers(kind, values.size, [given, pa.py_buffer(values)])


@kernel
def _copy(values: npt.NDArray[np.integer], at: Longs, out: npt.NDArray[np.integer]) -> int:
    """Copy the numbers at these indices, or all, with 0 for NULL; return how many are NULL."""
    missing = 0
    for i in range(out.size):
        value = values[at[i] if at.size else i]
        given = value != NULL
        out[i] = value if given else 0
        missing += not given
    return missing


def numbers(
    values: npt.NDArray[np.integer], kind: pa.DataType, at: Longs | None = None
) -> pa.Array:
    """Return integers as an Arrow array, at certain indices or all; NULL where NULL."""
    out = np.empty((values if at is None else at).size, kind.to_pandas_dtype())
    missing = _copy(values, _ALL if at is None else at, out)
    if missing == out.size:
        return nulls(kind, missing)
    given = bitmap((values if at is None else values[at]) != NULL) if missing else None
    return stored(out, kind, given)


@kernel
def _mark(codes: Codes, seen: Mask) -> None:
    """Mark the codes that occur, except -1."""
    for i in range(codes.size):
        if codes[i] >= 0:
            seen[codes[i]] = True


@kernel
def _recode(codes: Codes, new: Codes, out: Codes) -> int:
    """Replace each code but -1 with its new one; return how many are -1 now."""
    missing = 0
    for i in range(codes.size):
        out[i] = new[codes[i]] if codes[i] >= 0 else -1
        missing += out[i] < 0
    return missing


def words(
    given: npt.NDArray[np.integer], meanings: Sequence[str | None] | Mapping[int, str]
) -> pa.DictionaryArray:
    """Return a dictionary column of `meanings[code]`, NULL if that is None or the code is -1.

    Only words that occur are in the dictionary, each once, in alphabetical order.
    """
    codes: Codes = np.ascontiguousarray(given, np.int32)
    seen = np.zeros(int(codes.max(initial=-1)) + 1, np.bool_)
    _mark(codes, seen)
    occurring = np.flatnonzero(seen).tolist()
    used = sorted({word for i in occurring if (word := meanings[i]) is not None})
    places: dict[str | None, int] = {None: -1}
    places |= {word: place for place, word in enumerate(used)}
    new = np.zeros(seen.size, np.int32)
    for i in occurring:  # of small runs a few, for which an assignment of lists takes longer
        new[i] = places[meanings[i]]
    recoded, valid = np.empty_like(codes), None
    if _recode(codes, new, recoded):
        valid = bitmap(recoded >= 0)
        np.maximum(recoded, 0, out=recoded)  # Arrow also looks up the codes of NULLs
    indices = stored(recoded, pa.int32(), valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(used, pa.string()), safe=False)


def shapes(ends: Longs, dimensions: Longs, valid: Mask) -> pa.Array:
    """Return lists of `dimensions[ends[i - 1]:ends[i]]`."""
    offsets = np.zeros(ends.size + 1, np.int32)
    offsets[1:] = ends
    items = pa.array(dimensions[: offsets[-1]].copy())
    return pa.Array.from_buffers(
        _SHAPE, ends.size, [bitmap(valid), pa.py_buffer(offsets)], children=[items]
    )


def attributes(ends: Longs, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return maps of the keys and values `ends[i - 1]:ends[i]`; NULL where there are none."""
    offsets = np.zeros(ends.size + 1, np.int32)
    offsets[1:] = ends
    entries = pa.StructArray.from_arrays([keys, values], fields=list(_ENTRY))
    return pa.Array.from_buffers(
        ATTRIBUTES,
        ends.size,
        [bitmap(np.diff(offsets) > 0), pa.py_buffer(offsets)],
        children=[entries],
    )


def strings(ends: Longs, data: npt.NDArray[np.uint8]) -> tuple[pa.Array, Longs]:
    """Return strings that end at `ends` in `data`, NULL where the end is a complement.

    Returns:
        The strings, and the indices of those whose bytes are not UTF-8.
    """
    offsets = np.zeros(ends.size + 1, np.int32)
    offsets[1:] = np.where(ends < 0, ~ends, ends)
    used = data[: offsets[-1]].copy()
    made = pa.Array.from_buffers(
        pa.binary(), ends.size, [bitmap(ends >= 0), pa.py_buffer(offsets), pa.py_buffer(used)]
    )
    if not (used & 0x80).any():
        return made.view(pa.string()), np.empty(0, np.int64)
    raw = made.to_pylist()
    wrong = [i for i, value in enumerate(raw) if value is not None and not is_utf8(value)]
    texts = [None if value is None else text_of(value) for value in raw]
    return pa.array(texts, pa.string()), np.array(wrong, np.int64)
