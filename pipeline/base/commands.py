"""Print commands of tracelake so that they work when they are pasted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from contextvars import ContextVar

# Commands of lakes, and the lake that they must name; None where they find it without a name.
_naming: ContextVar[tuple[str, str] | None] = ContextVar("naming", default=None)


def name_lake(lake: str, commands: Iterable[str]) -> None:
    """Let `pasteable` name this lake in these commands."""
    found = rf"\btracelake (?:{'|'.join(commands)})\b(?! --lake)"
    _naming.set((found, shlex.quote(lake)))


def pasteable(text: str) -> str:
    """Return a text in which each command names its lake, where it must be named.

    Example:
        `list them with: tracelake runs` of `show x --lake 'my lake'` becomes
        `list them with: tracelake runs --lake 'my lake'`.
    """
    if naming := _naming.get():
        commands, lake = naming
        return re.sub(commands, lambda command: f"{command[0]} --lake {lake}", text)
    return text
