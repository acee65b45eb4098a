"""Text from inputs on its way to a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Text without control characters but line ends: a log line must not drive the terminal."""
    return "".join(
        c if c == "\n" or unicodedata.category(c)[0] != "C" else f"\\x{ord(c):02x}" for c in text
    )
