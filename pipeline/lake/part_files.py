"""Access a lake's part files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from tracelake.base import files
from tracelake.lake.layout import is_folder_of_parts, is_part_name

if TYPE_CHECKING:
    import duckdb


class Mark(NamedTuple):
    """The state of a part file; another state can be another content.

    Attributes:
        mtime_ns: 0 in a store, where objects are replaced and never changed.
    """

    bytes: int
    mtime_ns: int


class Stored(NamedTuple):
    """A part file that exists.

    Attributes:
        part: Posix, relative to the lake.
        settled: It is so old that no commit can be about to name it.
    """

    part: str
    bytes: int
    settled: bool


class PartFiles:
    """The part files of a lake in a directory; they never change.

    `tracelake.lake.stored` does the same below a URI. Parts are named by posix paths.

    Attributes:
        base: What the names are relative to: an absolute path, or a URI.
        local: They are in a directory, which all machines that work on the lake share.
    """

    local = True

    def __init__(self, base: str) -> None:
        self.base = base

    def mount(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read the parts by base and name."""

    def hand_in(self, staged: Mapping[str, Path]) -> Mapping[str, Path]:
        """Move parts from the machine that wrote them to where any machine can commit them.

        Args:
            staged: Name -> file in a staging folder.

        Returns:
            Parts that the commit still has to move.

        Raises:
            StoreError: The store does not take them.
        """
        return staged

    def take(self, staged: Mapping[str, Path]) -> set[Path]:
        """Move staged parts into place, and return what must be synced to the disk.

        Raises:
            StoreError: The store does not take them.
        """
        root = Path(self.base)
        known: set[Path] = set()
        for part, source in staged.items():
            target = root / part
            # The name has the content's hash: an intact file of that name is this file.
            if not (target.is_file() and self.is_intact(part)):
                files.make_folder(target.parent)
                files.replace(source, target)
            known |= {target, *target.parents[: part.count("/")], root}
        return known

    def stored(self) -> Iterator[Stored]:
        """Return every part file in a folder of a run or packs, by relation and name."""
        for table in sorted(os.listdir(self.base)):
            folder = Path(self.base, table)
            if table.startswith(("_", ".")) or not folder.is_dir():
                continue
            for place in filter(is_folder_of_parts, sorted(os.listdir(folder))):
                for path in sorted((folder / place).rglob("*")):
                    if not path.is_dir():
                        name = path.relative_to(self.base).as_posix()
                        yield Stored(name, path.lstat().st_size, settled=True)

    def marks(self, parts: Collection[str]) -> dict[str, Mark]:
        """Return the state of those parts that exist; only regular files are parts."""
        found = {}
        for part in parts:
            try:
                at = os.stat(f"{self.base}/{part}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISREG(at.st_mode):
                found[part] = Mark(at.st_size, at.st_mtime_ns)
        return found

    def open(self, part: str) -> IO[bytes]:
        """Return a part as a file.

        Raises:
            OSError: It cannot be read.
            StoreError: The store does not give it.
        """
        return Path(self.base, part).open("rb")

    def remove(self, parts: Collection[str]) -> int:
        """Remove parts that may not exist, and return how many were removed."""
        removed = 0
        for part in parts:
            path = Path(self.base, part)
            if path.exists():
                files.remove(path)
                removed += 1
            for folder in path.parents[: part.count("/") - 1]:
                files.remove_folder(folder)
        return removed

    def is_intact(self, part: str) -> bool:
        """Return whether a part's content has the hash in its name."""
        with self.open(part) as file:
            digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # of IO
        return digest.hexdigest().startswith(PurePosixPath(part).stem.removeprefix("part-"))


class UnlistedParts:
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
            files.append(self._path, f"\n{lines}".encode())  # the last line may be incomplete

    def listed(self) -> Collection[str] | None:
        """Return the listed parts; None if there is no list."""
        if not self._path.is_file():
            return None
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {line for line in lines if is_part_name(line)}

    def keep(self, parts: Collection[str]) -> None:
        """Replace the list."""
        content = "".join(f"{part}\n" for part in sorted(parts)).encode()
        if not self._path.is_file() or self._path.read_bytes() != content:
            beside = self._path.with_name(f"{self._path.name}.tmp")
            try:  # a sweep removes it if this process is killed
                files.write(beside, content)
                files.replace(beside, self._path)
            finally:
                files.remove(beside)
