"""Find the formats, in the package and in other distributions, without importing them.

A distribution brings a format as an entry point of the group `tracelake.formats`, whose name is the
format's and whose object is its `FORMAT`.
"""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tracelake.formats"
# Modules of the formats' folder that formats are made with, or that tell what is of none.
_FRAMES = {
    *("documents", "endings", "envelope", "expressions", "ledger", "line_parser", "lines"),
    *("many_lines", "readers", "starts", "unread"),
}


def own_formats() -> list[str]:
    """Return the names of the formats in the package: each module of their folder is one."""
    folder = Path(__file__).parent.parent / "formats"
    names = {module.name for module in pkgutil.iter_modules([str(folder)])}
    return sorted(names - _FRAMES)


def installed_formats() -> list[EntryPoint]:
    """Return the formats of other distributions, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def format_names() -> list[str]:
    """Return the names of all formats."""
    return sorted({*own_formats(), *(point.name for point in installed_formats())})
