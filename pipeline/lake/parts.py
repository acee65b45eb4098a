"""Where a lake's part files lie: in its directory, or in an object store."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from pipeline import files
from pipeline.schema import PARTITION_KEY, tables
from pipeline.stores import Place, StoredFile, listed, look, remove_all, upload

if TYPE_CHECKING:
    import duckdb

# A part of an object store that no manifest names yet may be one that another machine is about to
# commit; so much later it is not.
ORPHANED_SECONDS = 86_400


class Stored(NamedTuple):
    """A part file that is there.

    Attributes:
        part: Posix, relative to the lake.
        settled: It is so old that nobody is about to commit it.
    """

    part: str
    bytes: int
    settled: bool


class Parts(ABC):
    """The part files of a lake, named by posix paths relative to it; they never change.

    Attributes:
        base: What a name is relative to: an absolute path, or a URI.
    """

    base: str

    def place(self, part: str) -> str:
        """Where a part lies, as DuckDB reads it."""
        return f"{self.base}/{part}"

    @abstractmethod
    def mount(self, con: duckdb.DuckDBPyConnection) -> None:
        """Lets a connection read the parts."""

    @abstractmethod
    def hand_in(self, staged: Mapping[str, Path]) -> None:
        """Brings parts to where a commit on another machine finds them.

        Args:
            staged: Name -> file in the staging folder.

        Raises:
            StoreError: The store does not take them.
        """

    @abstractmethod
    def take(self, staged: Mapping[str, Path]) -> set[Path]:
        """Puts staged parts in their place, and says what must be brought to the disk.

        Raises:
            StoreError: The store does not take them.
        """

    @abstractmethod
    def stored(self) -> Iterator[Stored]:
        """Every file in a folder of parts, in order of table and name."""

    @abstractmethod
    def size(self, part: str) -> int | None:
        """Bytes of a part; None if it is not there."""

    @abstractmethod
    def open(self, part: str) -> IO[bytes]:
        """A part as a file.

        Raises:
            OSError: It cannot be read.
        """

    @abstractmethod
    def remove(self, parts: Collection[str]) -> int:
        """Removes parts, some of which may never have been there, and says how many were."""


class LocalParts(Parts):
    """Parts in a directory, beside the manifests."""

    def __init__(self, root: Path) -> None:
        self.base = str(root)
        self._root = root

    def mount(self, con: duckdb.DuckDBPyConnection) -> None:
        """See `Parts`."""

    def hand_in(self, staged: Mapping[str, Path]) -> None:
        """See `Parts`; staging lies on the lake's own file system."""

    def take(self, staged: Mapping[str, Path]) -> set[Path]:
        """See `Parts`."""
        known: set[Path] = set()
        for part, source in staged.items():
            target = self._root / part
            # The name carries the content's hash: a file of that name is this file.
            if not target.exists():
                files.make_folder(target.parent)
                files.replace(source, target)
            known |= {target, target.parent, target.parent.parent, self._root}
        return known

    def stored(self) -> Iterator[Stored]:
        """See `Parts`."""
        for table in tables():
            folder = self._root / table
            for run in sorted(os.listdir(folder)) if folder.is_dir() else ():
                if run.startswith(f"{PARTITION_KEY}="):
                    for name in sorted(os.listdir(folder / run)):
                        size = (folder / run / name).lstat().st_size
                        yield Stored(f"{table}/{run}/{name}", size, settled=True)

    def size(self, part: str) -> int | None:
        """See `Parts`."""
        path = self._root / part
        return path.stat().st_size if path.is_file() else None

    def open(self, part: str) -> IO[bytes]:
        """See `Parts`."""
        return (self._root / part).open("rb")

    def remove(self, parts: Collection[str]) -> int:
        """See `Parts`."""
        removed = 0
        for part in parts:
            path = self._root / part
            if path.exists():
                files.remove(path)
                removed += 1
            files.remove_folder(path.parent)
        return removed


class StoredParts(Parts):
    """Parts in an object store."""

    def __init__(self, place: Place) -> None:
        self.base = place.uri
        self._place = place

    def mount(self, con: duckdb.DuckDBPyConnection) -> None:
        """See `Parts`."""
        from pipeline.stores.duck import mount

        mount(con, self._place)

    def hand_in(self, staged: Mapping[str, Path]) -> None:
        """See `Parts`."""
        upload(self._place, staged)

    def take(self, staged: Mapping[str, Path]) -> set[Path]:
        """See `Parts`."""
        upload(self._place, staged)
        return set()

    def stored(self) -> Iterator[Stored]:
        """See `Parts`."""
        now = time.time()
        for table in tables():
            for found in listed(self._place.below(table)):
                settled = now - found.mtime_ns / 1e9 > ORPHANED_SECONDS
                yield Stored(f"{table}/{found.name}", found.size, settled)

    def size(self, part: str) -> int | None:
        """See `Parts`."""
        found = look(self._place.below(part))
        return None if found is None else found.size

    def open(self, part: str) -> IO[bytes]:
        """See `Parts`."""
        return cast(IO[bytes], StoredFile(self._place.below(part)))

    def remove(self, parts: Collection[str]) -> int:
        """See `Parts`; a store does not say whether there was something."""
        remove_all(self._place, parts)
        return len(parts)
