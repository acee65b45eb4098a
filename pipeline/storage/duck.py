"""Give DuckDB's own Parquet reader the files of a store: only the ranges it requests.

Measured against Arrow's scanner, with 20 ms a request: 200 small files 1.6 s against 5.3 s, the
same again 0.1 s against 3.5 s (DuckDB caches what it has read), a file of 1.3 M rows 0.3 s against
0.2 s and again 0.1 s.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

from tracelake.storage.files import StoredFile
from tracelake.storage.store_path import StorePath

if TYPE_CHECKING:
    import duckdb

# Part files never change, so that any date will do.
_ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)


def mount(con: duckdb.DuckDBPyConnection, place: StorePath) -> None:
    """Let a connection read files below a place, by their URIs; it cannot write them.

    Files must not change: DuckDB caches sizes and pieces as long as it is connected.
    """

    class Parts(AbstractFileSystem):  # type: ignore[misc]
        """The files below one place."""

        protocol = place.uri.split(":", 1)[0]
        cachable = False

        def __init__(self) -> None:
            super().__init__()
            self._sizes: dict[str, int] = {}

        def open(self, path: str, mode: str = "rb", **_: Any) -> _Cursors:
            """Open a file; a known one is requested when it is first read."""
            if mode != "rb":
                raise PermissionError(f"{path}: the lake is read-only here")
            file = StoredFile(self._place(path), self._sizes.get(path))
            self._sizes[path] = file.size
            return _Cursors(file)

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            """Return size of a file that has been opened."""
            if path not in self._sizes:
                self.open(path)
            return {"name": path, "size": self._sizes[path], "type": "file"}

        def modified(self, path: str) -> datetime:
            """Return a constant date, because part files never change."""
            del path
            return _ALWAYS

        def glob(self, path: str, **_: Any) -> list[str]:
            """Return the path itself: queries name files without wildcards."""
            return [path]

        def _place(self, path: str) -> StorePath:
            # DuckDB gives the URI or, after a glob, what follows its scheme.
            uri = path if "://" in path else f"{self.protocol}://{path}"
            inside = uri.removeprefix(f"{place.uri}/")
            if inside == uri or ".." in inside.split("/"):
                raise PermissionError(f"{uri}: not in the lake")
            return place.below(inside)

    con.register_filesystem(Parts())


class _Cursors:
    """A file for DuckDB, which reads it with several threads: each has its own position."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._thread = threading.local()

    def tell(self) -> int:
        at: int = getattr(self._thread, "at", 0)
        return at

    def seek(self, offset: int, /) -> None:
        self._thread.at = offset

    def read(self, count: int, /) -> bytes:
        """Return bytes in one request."""
        data = self._file.range(self.tell(), count)
        self._thread.at = self.tell() + len(data)
        return data

    def close(self) -> None:
        """Do nothing: there is no connection of its own."""
