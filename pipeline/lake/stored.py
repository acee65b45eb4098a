"""Access a lake in an object store: its part files there, its small files through a local copy."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from tracelake.lake.layout import is_part_name
from tracelake.lake.part_files import Mark, PartFiles, Stored
from tracelake.lake.work import STAGING
from tracelake.storage.duck import mount
from tracelake.storage.files import StoredFile
from tracelake.storage.objects import listed, look, remove_all, upload
from tracelake.storage.store_path import StorePath

if TYPE_CHECKING:
    import duckdb

# A worker puts parts before they are committed; after a day no commit can follow.
_SETTLED_SECONDS = 86_400
# Fewer parts are looked up one by one; for more a folder is listed, 1,000 per request.
_LISTED = 50


class StoredPartFiles(PartFiles):
    """Parts below a URI."""

    local = False

    def __init__(self, place: StorePath) -> None:
        super().__init__(place.uri)
        self._place = place

    def mount(self, con: duckdb.DuckDBPyConnection) -> None:
        """See `PartFiles`."""
        mount(con, self._place)

    def hand_in(self, staged: Mapping[str, Path]) -> Mapping[str, Path]:
        """See `PartFiles`."""
        upload(self._place, staged)
        return {}

    def take(self, staged: Mapping[str, Path]) -> set[Path]:
        """See `PartFiles`."""
        upload(self._place, staged)
        return set()

    def stored(self) -> Iterator[Stored]:
        """See `PartFiles`."""
        now = time.time()
        for found in listed(self._place):
            # staged by workers whose command has died
            if is_part_name(found.name) or found.name.startswith(f"{STAGING}/"):
                settled = now - found.mtime_ns / 1e9 > _SETTLED_SECONDS
                yield Stored(found.name, found.size, settled)

    def marks(self, parts: Collection[str]) -> dict[str, Mark]:
        """See `PartFiles`."""
        wanted = set(parts)
        if len(wanted) <= _LISTED:
            found = look(self._place, wanted)
        else:
            found = {
                f"{table}/{file.name}": file.size
                for table in {part.partition("/")[0] for part in wanted}
                for file in listed(self._place.below(table))
            }
        return {part: Mark(found[part], 0) for part in wanted & found.keys()}

    def open(self, part: str) -> IO[bytes]:
        """See `PartFiles`."""
        return cast(IO[bytes], StoredFile(self._place.below(part)))

    def remove(self, parts: Collection[str]) -> int:
        """See `PartFiles`; a store does not say whether there was something."""
        remove_all(self._place, parts)
        return len(parts)
