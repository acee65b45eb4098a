"""Read a word, a number or a time at a position in a line of text.

Each reader returns first the position after what it read, or a negative number if the text does not
match, and passes a negative position on, so readers can be chained. The text is given by its
address, because an index into an array is checked for its sign at every byte.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import numpy as np

from tracelake.kernels.compiled import (
    eight_at,
    inlined,
    kernel,
    leading_zeros,
    trailing_zeros,
    typed,
)

BROKEN, NO_NUMBER = -1, -2  # result of a reader whose text does not match

_NS_DIGITS = 6  # decimal digits of nanoseconds in a millisecond
_SCALE = 10 ** np.arange(_NS_DIGITS, -1, -1)
_MS_LIMIT = 10**12
_EXACT_DIGITS = 15  # a float can represent every integer of this many digits


def word(text: bytes) -> int:
    """Return up to 8 ASCII bytes as one number, the form in which kernels compare them."""
    assert len(text) <= 8
    return typed(int.from_bytes(text, "little"))


_AVG = word(b"(avg=")
_CLOSE = word(b")")
_INF = word(b"inf")
_MS = word(b"ms")
_NAN = word(b"nan")


@inlined
def _size(text):
    """Return bytes of a word."""
    return 8 - (leading_zeros(np.uint64(text)) >> 3)


@kernel
def _stands_near_end(data, i, end, text):
    while text:
        if i >= end or data[i] != text & 255:
            return False
        text >>= 8
        i += 1
    return True


@inlined
def at(data, i, end, text):
    """Return whether the word is at `i`."""
    if i < 0:
        return False
    if i + 8 > end:
        return _stands_near_end(data, i, end, text)
    return (eight_at(data, i) ^ np.uint64(text)) << np.uint64(64 - 8 * _size(text)) == 0


@inlined
def blanks(data, i, end):
    """Return the position after blanks; a negative `i` unchanged."""
    while 0 <= i < end and data[i] == 32:
        i += 1
    return i


@inlined
def behind(data, i, end, text):
    """Return the position after blanks and the word; a negative `i` unchanged; else BROKEN."""
    i = blanks(data, i, end)
    return i if i < 0 else i + _size(text) if at(data, i, end, text) else BROKEN


@inlined
def _digits(word):
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
    return many, np.int64(found)


@kernel
def _long_count(data, i, end):
    start = i
    value = 0
    while i < end and 48 <= data[i] <= 57:
        if i - start == 18:
            return BROKEN, 0
        value = value * 10 + (data[i] - 48)
        i += 1
    return i if i > start else BROKEN, value


@inlined
def count(data, i, end):
    """Read blanks and an integer of up to 18 digits; return the next position and the number."""
    i = blanks(data, i, end)
    if i < 0:
        return i, 0
    if i + 8 <= end:
        many, value = _digits(eight_at(data, i))
        if 0 < many < 8:
            return i + many, value
    return _long_count(data, i, end)


@kernel
def _long_decimal(data, i, end):
    start = i
    value = 0
    while i < end and 48 <= data[i] <= 57 and value < _MS_LIMIT:
        value = value * 10 + (data[i] - 48)
        i += 1
    if i == start or value >= _MS_LIMIT:
        return NO_NUMBER, 0
    left = _NS_DIGITS
    if i < end and data[i] == 46:
        i += 1
        while i < end and 48 <= data[i] <= 57 and left:
            value = value * 10 + (data[i] - 48)
            i += 1
            left -= 1
        if left == _NS_DIGITS or (i < end and 48 <= data[i] <= 57):
            return NO_NUMBER, 0
    while left:
        value *= 10
        left -= 1
    return i, value


@inlined
def decimal(data, i, end):
    """Read decimal milliseconds; return the position after them, and the exact ns."""
    if i + 16 <= end:
        many, whole = _digits(eight_at(data, i))
        if 0 < many < 8 and data[i + many] == 46:
            places, part = _digits(eight_at(data, i + many + 1))
            if 0 < places <= _NS_DIGITS:
                return i + many + 1 + places, whole * 1000000 + part * _SCALE[places]
    return _long_decimal(data, i, end)


@kernel
def time_ms(data, i, end):
    """Read a time in ms; return the position after it, and the ns."""
    if i < 0:
        return i, 0
    i, value = decimal(data, i, end)
    return behind(data, i, end, _MS), value


@kernel
def pair_ms(data, i, end, text):
    """Read a time and its average in brackets; return the position after them, and both in ns."""
    i, value = time_ms(data, behind(data, i, end, text), end)
    i, avg = time_ms(data, behind(data, i, end, _AVG), end)
    return behind(data, i, end, _CLOSE), value, avg


@kernel
def decimal_float(data, i, end):
    """Read a float; return next position, value, and its start if it has too many digits."""
    if i < 0:
        return i, 0.0, -1
    i = start = blanks(data, i, end)
    minus = i < end and data[i] == 45
    i += minus
    if at(data, i, end, _NAN) or at(data, i, end, _INF):
        value = np.nan if data[i] == 110 else np.inf
        return i + 3, -value if minus else value, -1
    mantissa = digits = scale = 0
    point = False
    while i < end and (48 <= data[i] <= 57 or (data[i] == 46 and not point)):
        if data[i] == 46:
            point = True
        else:
            mantissa = mantissa * 10 + (data[i] - 48) if digits < _EXACT_DIGITS else 0
            digits += 1
            scale += point
        i += 1
    if digits == 0 or data[i - 1] == 46:
        return NO_NUMBER, 0.0, -1
    wide = digits > _EXACT_DIGITS
    power = i + 2 if i + 1 < end and data[i + 1] in (43, 45) else i + 1
    if power < end and data[i] == 101 and 48 <= data[power] <= 57:
        wide = True
        i = power
        while i < end and 48 <= data[i] <= 57:
            i += 1
    if wide:
        return i, 0.0, start
    # Both numbers are exact, so the single rounding of the division is correct.
    value = mantissa / 10.0**scale
    return i, -value if minus else value, -1
