"""Read Python string literals in raw bytes: where one ends, and its text without escapes."""

from __future__ import annotations

from tracelake.kernels.compiled import kernel
from tracelake.kernels.numbers import Bytes

_BACKSLASH = 92
_MAX_CODE_POINT = 0x10FFFF


@kernel
def closing_quote(buf: Bytes, p: int, end: int) -> tuple[int, bool]:
    """Return the index of the quote that closes the one at p - 1, and whether escapes precede it.

    The index is `end` if the literal is not closed.
    """
    quote, q, escaped = buf[p - 1], p, False
    while q < end and buf[q] != quote:
        if buf[q] == _BACKSLASH:
            escaped = True
            q += 1
        q += 1
    return min(q, end), escaped


@kernel
def _simple(c: int) -> int:
    r"""Return the byte that `\\c` means; -1 if it takes digits or is unknown."""
    if c in (39, 34, _BACKSLASH):  # ' " \
        return c
    if c == 110:  # n
        return 10
    if c == 114:  # r
        return 13
    if c == 116:  # t
        return 9
    return -1


@kernel
def _hex_value(buf: Bytes, p: int, q: int) -> int:
    """Return the value of the hexadecimal digits `buf[p:q]`; -1 if there are others."""
    value = 0
    for i in range(p, q):
        c = buf[i]
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= c <= 102 or 65 <= c <= 70:
            digit = (c | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@kernel
def _put_utf8(code: int, out: Bytes, n: int) -> int:
    """Write a code point at n; return the index after it."""
    if code < 0x80:
        out[n] = code
        return n + 1
    more = 1 if code < 0x800 else 2 if code < 0x10000 else 3  # bytes behind the first
    out[n] = (0xFF00 >> (more + 1)) & 0xFF | (code >> (6 * more))
    for k in range(more):
        out[n + 1 + k] = 0x80 | ((code >> (6 * (more - 1 - k))) & 0x3F)
    return n + 1 + more


@kernel
def unescape(buf: Bytes, p: int, end: int, out: Bytes) -> int:
    r"""Write the text of the literal `buf[p:end]` as UTF-8, with the escapes that `repr` uses.

    These are `\\ \' \" \n \r \t \xNN \uNNNN \UNNNNNNNN`; the text is never longer than the literal.

    Returns:
        Length of the text, -1 where an escape is none of these or no character.
    """
    n, q = 0, p
    while q < end:
        if buf[q] != _BACKSLASH:
            out[n] = buf[q]
            n, q = n + 1, q + 1
            continue
        if q + 1 >= end:
            return -1
        kind = buf[q + 1]
        plain = _simple(kind)
        if plain >= 0:
            out[n] = plain
            n, q = n + 1, q + 2
            continue
        width = 2 if kind == 120 else 4 if kind == 117 else 8 if kind == 85 else 0
        if width == 0 or q + 2 + width > end:
            return -1
        code = _hex_value(buf, q + 2, q + 2 + width)
        if code < 0 or code > _MAX_CODE_POINT or 0xD800 <= code <= 0xDFFF:
            return -1
        n = _put_utf8(code, out, n)
        q += 2 + width
    return n
