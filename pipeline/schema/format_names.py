"""Find the formats, in the package and in other distributions, without importing them.

A distribution brings a format as an entry point of the group `tracelake.formats`, whose name is the
format's and whose object is its `FORMAT`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tracelake.formats"
_DECLARED = re.compile(rb"^FORMAT\b", re.MULTILINE)


def own_formats() -> list[str]:
    """Return the names of the formats in the package: modules of their folder with a `FORMAT`."""
    folder = Path(__file__).parent.parent / "formats"
    modules = {path.stem: path for path in folder.glob("*.py")}
    modules |= {path.parent.name: path for path in folder.glob("*/__init__.py")}
    return sorted(name for name, path in modules.items() if _DECLARED.search(path.read_bytes()))


def installed_formats() -> list[EntryPoint]:
    """Return the formats of other distributions, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def format_names() -> list[str]:
    """Return the names of all formats."""
    return sorted({*own_formats(), *(point.name for point in installed_formats())})
