"""Part files that may belong to no run: listed before they can, looked at by the next sweep."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path


class Loose:
    """A list of part files, relative to the lake's root, in a file of a name per line.

    Whoever moves part files in, or replaces a manifest that names some, lists them before. So a
    sweep need not look through the folders of every run. Hold the lake's commit lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, parts: Iterable[str]) -> None:
        """Lists more, where there is a list; without one the next sweep looks at everything."""
        if self._path.is_file():
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{part}\n" for part in parts)

    def listed(self) -> Collection[str] | None:
        """What is listed; None if there is no list."""
        if not self._path.is_file():
            return None
        return set(self._path.read_text(encoding="utf-8").splitlines())

    def keep(self, parts: Collection[str]) -> None:
        """Puts a list of these in place of the old one."""
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        beside.write_text("".join(f"{part}\n" for part in sorted(parts)), encoding="utf-8")
        os.replace(beside, self._path)
