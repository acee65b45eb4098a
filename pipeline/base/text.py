"""Format text for a terminal, and name the lake in commands that a text tells to paste."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from contextvars import ContextVar

# Characters that JSON does not escape: delete, controls beyond ASCII, marks that reverse text,
# and characters that some readers take for a line end.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
# Commands that have a lake, where they do not name it.
_COMMAND = re.compile(
    r"\btracelake (?:ask|build|check|compact|diff|drop|export|gc|ingest|mcp|query|report|runs?|show"
    r"|sql|timeline|whatif)\b(?! --lake|:)"
)
# The lake that commands must name; None where they find it without a name.
_naming: ContextVar[str | None] = ContextVar("naming", default=None)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 run, 2 runs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Sequence[object], most: int) -> str:
    """Return the first names, and the number of the others: a, b and 3 more."""
    shown = ", ".join(map(str, names[:most]))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def printable(text: str) -> str:
    """Return text without control characters except line ends; logs cannot control terminals."""
    if text.isprintable():
        return text
    return "".join(
        c if c == "\n" or unicodedata.category(c)[0] != "C" else f"\\x{ord(c):02x}" for c in text
    )


def json_text(value: object, *, indent: int | None = None) -> str:
    r"""Return a value as JSON that is safe to print: control characters are spelled `\\uNNNN`.

    Raises:
        ValueError: It has NaN or infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cut_middle(text: str, width: int) -> str:
    """Return text of at most `width` characters; the middle is cut, so both ends stay."""
    if len(text) <= width:
        return text
    kept = max(0, width - 2)
    tail = min(kept, max(kept // 2, min(kept, 10)))
    return f"{text[: kept - tail]}..{text[len(text) - tail :]}"[:width]


def name_lake(lake: str) -> None:
    """Let `pasteable` name this lake."""
    _naming.set(lake)


def with_lake(text: str, lake: str, escape: Callable[[str], str] = str) -> str:
    """Return a text in which each command names this lake, for a reader who has set none.

    Args:
        escape: Writes the name in the form of the text, such as HTML.
    """

    def named(command: re.Match[str]) -> str:
        return f"{command[0]} --lake {escape(shlex.quote(printable(lake)))}"

    return _COMMAND.sub(named, text)


def pasteable(text: str) -> str:
    """Return a text in which each command names its lake, where it must be named.

    Example:
        `list them with: tracelake runs` of `show x --lake 'my lake'` becomes
        `list them with: tracelake runs --lake 'my lake'`.
    """
    lake = _naming.get()
    return text if lake is None else with_lake(text, lake)
