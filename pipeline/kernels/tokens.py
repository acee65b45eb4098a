"""Intern byte strings for kernels: equal byte strings get equal small integers.

A kernel first compares with the last token of the same field (`match`), which succeeds for nearly
every value of a log, and hashes only if that fails (`intern`). A kernel never grows a table: it
calls `has_room` before a line and returns to Python, which calls `reserve`.
"""

# ruff: noqa: PLR0911 -- a kernel returns as soon as it knows the result
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import inlined, kernel, word_at
from tracelake.kernels.numbers import Bytes, copy_bytes


class Tokens(NamedTuple):
    """Arrays of a token table: token i is `text[offsets[i]:offsets[i + 1]]`.

    `text` has 8 spare bytes, so that tokens compare by words. `slots` is an open-addressing hash
    table of i + 1 (0 = free), its length a power of two; `size[0]` is the number of tokens.
    """

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    size: npt.NDArray[np.int64]


class TokenTable:
    """Owner of `Tokens`: fixed tokens first, then growth, and removal of the rest."""

    def __init__(self, fixed: Sequence[bytes]) -> None:
        self._fixed = tuple(fixed)
        self.tokens = _copy(_of(self._fixed))

    def __len__(self) -> int:
        return int(self.tokens.size[0])

    def reserve(self, extra: int) -> None:
        """Make space for all tokens that `extra` more bytes can have."""
        if has_room(self.tokens, extra):
            return
        old, count = self.tokens, len(self)
        used = int(old.offsets[count])
        self.tokens = _allocate(2 * (used + extra), 2 * (count + extra))
        rehash(self.tokens, old.text[:used], old.offsets[: count + 1])

    def clear(self) -> None:
        """Remove all but the fixed tokens."""
        self.tokens = _copy(_of(self._fixed))

    def raw(self, token: int) -> bytes:
        """Return bytes of a token."""
        start, end = self.tokens.offsets[token : token + 2]
        return self.tokens.text[start:end].tobytes()


def _allocate(text: int, count: int) -> Tokens:
    slots = 1 << (2 * count - 1).bit_length()
    return Tokens(
        np.zeros(text + 8, np.uint8),
        np.zeros(count + 1, np.int64),
        np.zeros(slots, np.int32),
        np.zeros(1, np.int64),
    )


def _copy(tokens: Tokens) -> Tokens:
    text, offsets, slots, size = tokens
    return Tokens(text.copy(), offsets.copy(), slots.copy(), size.copy())


@functools.cache
def _of(fixed: tuple[bytes, ...]) -> Tokens:
    """Return the tokens that the tables of all runs begin with."""
    tokens = _allocate(max(1 << 12, 2 * sum(map(len, fixed))), max(1 << 10, 2 * len(fixed)))
    for token in fixed:
        intern(tokens, np.frombuffer(token, np.uint8).copy(), 0, len(token))
    return tokens


@kernel
def has_room(tokens: Tokens, extra: int) -> bool:
    """Return whether the tokens of `extra` more bytes fit, each at least one byte long."""
    count = tokens.size[0]
    used = tokens.offsets[count]
    return bool(used + extra <= tokens.text.size - 8) and bool(count + extra < tokens.offsets.size)


@inlined
def match(tokens: Tokens, token: int, buf: Bytes, p: int, end: int) -> int:
    """Return the index after the token if it is at p, else -1; -1 for a negative token."""
    if token < 0:
        return -1
    start = tokens.offsets[token]
    length = tokens.offsets[token + 1] - start
    behind = int(p + length)
    if behind > end:
        return -1
    if behind + 8 > buf.size:  # too near the end of the data to compare by words
        for i in range(length):
            if buf[p + i] != tokens.text[start + i]:
                return -1
        return behind
    while p + 8 <= behind:
        if word_at(buf, p) != word_at(tokens.text, start):
            return -1
        p, start = p + 8, start + 8
    unused = (word_at(buf, p) ^ word_at(tokens.text, start)) << np.uint64(8 * (8 - (behind - p)))
    if p < behind and unused != 0:
        return -1
    return behind


@kernel
def intern(tokens: Tokens, buf: Bytes, p: int, end: int) -> int:
    """Return the number of the token `buf[p:end]`, perhaps a new one. There must be space."""
    digest = np.uint64(14695981039346656037)  # FNV-1a
    for i in range(p, end):
        digest = (digest ^ np.uint64(buf[i])) * np.uint64(1099511628211)
    mask = np.int64(tokens.slots.size - 1)
    slot = np.int64(digest ^ (digest >> np.uint64(32))) & mask
    while tokens.slots[slot] != 0:
        found = tokens.slots[slot] - 1
        if tokens.offsets[found + 1] - tokens.offsets[found] == end - p and (
            match(tokens, found, buf, p, end) >= 0
        ):
            return int(found)
        slot = (slot + 1) & mask
    count = tokens.size[0]
    start = tokens.offsets[count]
    tokens.offsets[count + 1] = copy_bytes(buf, p, end, tokens.text, start)
    tokens.slots[slot] = count + 1
    tokens.size[0] = count + 1
    return int(count)


@kernel
def rehash(tokens: Tokens, text: Bytes, offsets: npt.NDArray[np.int64]) -> None:
    """Put tokens into an empty, larger table under their old numbers."""
    for i in range(offsets.size - 1):
        intern(tokens, text, offsets[i], offsets[i + 1])
