"""List part files that may belong to no run; the next sweep checks them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from tracelake.base.files import append, remove, replace, write
from tracelake.lake.shapes import is_part


class Loose:
    """A list of part files, relative to the lake's root, in a file of a name per line.

    Every commit lists part files here before it moves them in or replaces a manifest that names
    them. So a sweep need not search the folders of every run. The caller holds the lake's commit
    lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, parts: Iterable[str]) -> None:
        """Add parts to the list if it exists; without a list the next sweep searches all."""
        lines = "".join(f"{part}\n" for part in parts)
        if lines and self._path.is_file():
            append(self._path, f"\n{lines}".encode())  # the last line may be incomplete

    def listed(self) -> Collection[str] | None:
        """Return the listed parts; None if there is no list."""
        if not self._path.is_file():
            return None
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {line for line in lines if is_part(line)}

    def keep(self, parts: Collection[str]) -> None:
        """Replace the list."""
        content = "".join(f"{part}\n" for part in sorted(parts)).encode()
        if not self._path.is_file() or self._path.read_bytes() != content:
            beside = self._path.with_name(
                f"{self._path.name}.tmp"
            )  # a sweep removes it if this process is killed
            try:
                write(beside, content)
                replace(beside, self._path)
            finally:
                remove(beside)
