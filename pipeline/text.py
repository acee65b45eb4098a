"""Text on its way to a terminal."""

from __future__ import annotations

import json
import re
import unicodedata

_BYTES = ("kB", "MB", "GB", "TB")
# Of what JSON leaves as it is: deleting, the controls beyond ASCII, marks that turn text around,
# and what some readers take for a line's end.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def amount(size: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    if abs(size) < 1000:
        return f"{size} B"
    power = 1
    while power < len(_BYTES) and abs(size) >= 999_995 * 1000 ** (power - 1):
        power += 1
    return f"{size / 1000**power:.2f} {_BYTES[power - 1]}"


def counted(count: int, noun: str) -> str:
    """A number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    """Text without control characters but line ends: a log line must not drive the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or unicodedata.category(c)[0] != "C" else f"\\x{ord(c):02x}" for c in text
    )


def json_text(value: object, *, indent: int | None = None) -> str:
    r"""A value as JSON that is safe to print: what could drive a terminal is spelled `\uNNNN`.

    Raises:
        ValueError: It has NaN or infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cut_middle(text: str, width: int) -> str:
    """Text of at most so many characters; what is left out is in the middle, so both ends stay."""
    if len(text) <= width:
        return text
    kept = max(0, width - 2)
    tail = min(kept, max(kept // 2, min(kept, 10)))
    return f"{text[: kept - tail]}..{text[len(text) - tail :]}"[:width]
