"""Compare raw bytes with short words, eight bytes at once: what every text format shares."""

from __future__ import annotations

import numpy as np

from tracelake.kernels.compiled import inlined, leading_zeros, typed, word_at
from tracelake.kernels.numbers import Bytes


def word_of(text: bytes) -> int:
    """Return up to 8 ASCII bytes as one number, the form in which kernels compare them."""
    assert len(text) <= 8
    return typed(int.from_bytes(text, "little"))


@inlined
def _at_near_end(buf: Bytes, p: int, end: int, word: int) -> bool:
    while word:
        if p >= end or buf[p] != word & 255:
            return False
        word >>= 8
        p += 1
    return True


@inlined
def is_at(buf: Bytes, p: int, end: int, word: int) -> bool:
    """Return whether a word of `word_of` is at p."""
    if p < 0 or p + 8 > end:
        return p >= 0 and _at_near_end(buf, p, end, word)
    unused = leading_zeros(np.uint64(word)) & 56
    return bool((word_at(buf, p) ^ np.uint64(word)) << np.uint64(unused) == 0)


@inlined
def behind_blanks(buf: Bytes, p: int, end: int) -> int:
    """Return the index after the blanks at p."""
    while p < end and buf[p] == 32:
        p += 1
    return p
