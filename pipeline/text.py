"""Text on its way to a terminal."""

from __future__ import annotations

import unicodedata


def counted(count: int, noun: str) -> str:
    """A number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Text without control characters but line ends: a log line must not drive the terminal."""
    return "".join(
        c if c == "\n" or unicodedata.category(c)[0] != "C" else f"\\x{ord(c):02x}" for c in text
    )
