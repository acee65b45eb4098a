"""Part files that may belong to no run: listed before they can, looked at by the next sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pipeline.files import append, remove, replace, write


class Loose:
    """A list of part files, relative to the lake's root, in a file of a name per line.

    Whoever moves part files in, or replaces a manifest that names some, lists them before. So a
    sweep need not look through the folders of every run. Hold the lake's commit lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, parts: Iterable[str]) -> None:
        """Lists more, where there is a list; without one the next sweep looks at everything."""
        lines = "".join(f"{part}\n" for part in parts)
        if lines and self._path.is_file():
            append(self._path, f"\n{lines}".encode())  # the last line may have been cut short

    def listed(self) -> Collection[str] | None:
        """What is listed; None if there is no list."""
        if not self._path.is_file():
            return None
        lines = self._path.read_text(encoding="utf-8").splitlines()
        return {line for line in lines if line.endswith(".parquet")}

    def keep(self, parts: Collection[str]) -> None:
        """Puts a list of these in place of the old one."""
        content = "".join(f"{part}\n" for part in sorted(parts)).encode()
        if not self._path.is_file() or self._path.read_bytes() != content:
            beside = self._path.with_name(f"{self._path.name}.tmp")  # swept if this is killed
            try:
                write(beside, content)
                replace(beside, self._path)
            finally:
                remove(beside)
