"""Find line ends and read decimal numbers in raw bytes: kernels that every text format shares."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import equal_at, inlined, kernel, trailing_zeros, typed, word_at

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

NULL = -(1 << 63)
"""Marks a missing number between kernel and Arrow; never stored."""

INTEGER_DIGITS = 13
INTEGER_LIMIT = 4 * 10**12
FRACTION_DIGITS = 6

_START = typed(0)
_SPARE = _AT_ONCE = 64
_NEWLINE = 10

SCALE = 10 ** np.arange(FRACTION_DIGITS, -1, -1, dtype=np.int64)
"""Nanoseconds of the last digit, by how many there are after the point of milliseconds."""


def byte_set(characters: bytes) -> npt.NDArray[np.bool_]:
    """Return, for each byte, whether it is among these."""
    return np.isin(np.arange(256), list(characters))


@kernel
def _line_ends(data: Bytes, p: int, out: Longs, n: int) -> tuple[int, int]:
    """Append line ends from p on; return their number, and where it stopped."""
    while p + _AT_ONCE <= data.size and n + _AT_ONCE <= out.size:
        found = equal_at(data, p, _NEWLINE)
        while found != 0:
            out[n] = p + trailing_zeros(found)
            n += 1
            found &= found - np.uint64(1)
        p += _AT_ONCE
    while data.size - p < _AT_ONCE and p < data.size and n < out.size:
        if data[p] == _NEWLINE:
            out[n] = p
            n += 1
        p += 1
    return n, p


def line_ends(data: Bytes, out: Longs) -> tuple[Longs, int]:
    r"""Find every `\n`.

    Returns:
        `out`, or a larger array if it was too short, and the number of indices in it.
    """
    n, p = _line_ends(data, _START, out, _START)
    while p < data.size:
        out = np.concatenate([out, np.empty(max(out.size, _SPARE), np.int64)])
        n, p = _line_ends(data, typed(p), out, typed(n))
    return out, int(n)


@inlined
def whole_number(buf: Bytes, p: int, end: int, max_digits: int) -> tuple[int, int]:
    """Read 1 to `max_digits` digits.

    Returns:
        (value, index after the number), or (0, -1) if no such number starts at p.
    """
    value = 0
    q = p
    while q < end and 48 <= buf[q] <= 57:
        value = value * 10 + (buf[q] - 48)
        q += 1
        if q - p > max_digits:
            return 0, -1
    if q == p:
        return 0, -1
    return value, q


@inlined
def digits_end(buf: Bytes, p: int, end: int) -> int:
    """Return the index after the digits at p."""
    while p < end and 48 <= buf[p] <= 57:
        p += 1
    return p


@inlined
def _digits(word: np.uint64) -> tuple[int, int]:
    """Return how many of the first eight characters are leading digits, and their value.

    Eight digits are combined in three steps: neighbours, then pairs, then fours.
    """
    found = word ^ np.uint64(0x3030303030303030)
    others = ((found + np.uint64(0x7676767676767676)) | found) & np.uint64(0x8080808080808080)
    many = trailing_zeros(others) >> 3 if others else 8
    if many == 0:
        return 0, 0
    found <<= np.uint64(64 - 8 * many)
    found = (found * np.uint64(10) + (found >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    found = (found * np.uint64(100) + (found >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    found = (found * np.uint64(10000) + (found >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return many, int(np.int64(found))


@inlined
def short_decimal_ns(buf: Bytes, p: int, end: int) -> tuple[int, int]:
    """Read up to 7 digits, a point, and up to 6 digits of milliseconds, without a branch per digit.

    Returns:
        (ns, index after the number), or (0, -1) for other numbers, and near the end of the text.
    """
    if p + 16 <= end:
        many, whole = _digits(np.uint64(word_at(buf, p)))
        if 0 < many < 8 and buf[p + many] == 46:
            places, part = _digits(np.uint64(word_at(buf, p + many + 1)))
            if 0 < places <= FRACTION_DIGITS:
                return whole * 1000000 + part * SCALE[places], p + many + 1 + places
    return 0, -1


@inlined
def decimal_ns(buf: Bytes, p: int, end: int) -> tuple[int, int]:
    """Read a decimal number of milliseconds as exact nanoseconds.

    Digits, perhaps a point and more digits: no sign, no exponent, below 4e12 (a clock that counts
    from 1970 until the year 2096; any sum of two such times fits int64), 6 digits after the point.

    Returns:
        (ns, index after the number), or (0, -1) if no such number starts at p.
    """
    value, q = whole_number(buf, p, end, INTEGER_DIGITS)
    if q < 0 or value >= INTEGER_LIMIT:
        return 0, -1
    digits = 0
    if q < end and buf[q] == 46:
        q += 1
        while q < end and 48 <= buf[q] <= 57:
            value = value * 10 + (buf[q] - 48)
            q += 1
            digits += 1
            if digits > FRACTION_DIGITS:
                return 0, -1
        if digits == 0:
            return 0, -1
    return value * SCALE[digits], q


@inlined
def copy_bytes(source: Bytes, p: int, q: int, out: Bytes, at: int) -> int:
    """Copy `source[p:q]` to `out` from index `at` on; return the index after it."""
    for i in range(q - p):
        out[at + i] = source[p + i]
    return at + q - p
