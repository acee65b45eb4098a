"""Define sources of a run: inputs that can be opened, and members of a tar."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import IO

from tracelake.inputs.opening import Opened, open_entry
from tracelake.inputs.prefetch import ahead
from tracelake.inputs.streams import FileRef, decompressed, read_as_planned, stat_of
from tracelake.storage import FIRST_BYTES, is_uri

# Objects of a store that one run opens at once.
_AHEAD = 16
# Inputs up to this size are read at once, not in pieces.
_SMALL = 1 << 18
_NOTHING = hashlib.sha256().hexdigest()


@dataclass(slots=True)
class Read:
    """The facts about a source, complete once it was read to its end.

    Attributes:
        bytes, lines: Decompressed bytes and lines.
        content_hash: SHA-256 of the decompressed bytes, hex.
    """

    bytes: int = 0
    lines: int = 0
    content_hash: str = _NOTHING
    compression: str | None = None


class Source(ABC):
    """A source that is to be read.

    Attributes:
        weight: Bytes to count for progress when it is read.
    """

    source_id: int
    weight: int = 0

    def take(self, view: memoryview) -> int | None:
        """Read it whole to the beginning of a view, if that is faster than opening it.

        Returns:
            Its number of bytes, unchanged while it was read; None if it must be opened.
        """
        del view
        return None

    @abstractmethod
    def open(self) -> Opened:
        """Return the decompressed bytes and their compression."""

    def reopen(self) -> Opened | None:
        """Open it again in a way that salvages the rest of a damaged stream, if possible."""
        return None

    def changed(self) -> bool:
        """Return whether it has changed since the plan."""
        return False


class FileSource(Source):
    """An input that can be opened by itself.

    Attributes:
        opening: The prefetch that `open` waits for, if there is one.
    """

    def __init__(self, source_id: int, entry: FileRef) -> None:
        self.source_id = source_id
        self.weight = entry.weight
        self.entry = entry
        self.opening: Future[Opened] | None = None

    def take(self, view: memoryview) -> int | None:
        """See `Source`."""
        entry = self.entry
        plain = self.opening is None and entry.member is None
        if plain and entry.size < min(len(view), _SMALL) and read_as_planned(entry, view):
            return entry.size
        return None

    def open(self) -> Opened:
        """See `Source`."""
        opening, self.opening = self.opening, None
        return opening.result() if opening else open_entry(self.entry)

    def reopen(self) -> Opened:
        """See `Source`."""
        return open_entry(self.entry, patient=True)

    def changed(self) -> bool:
        """See `Source`."""
        if is_uri(self.entry.location) and self.entry.size <= FIRST_BYTES:
            return False  # it came in one piece, of one state of the object
        try:
            size, mtime_ns, _ = stat_of(self.entry.location)
        except OSError:
            return True
        return (size, mtime_ns) != (self.entry.size, self.entry.mtime_ns)


def opened_ahead(sources: Iterable[FileSource]) -> Iterator[FileSource]:
    """Yield sources of a store in order, each opened while earlier ones are read."""
    for source, opening in ahead(sources, lambda coming: partial(open_entry, coming.entry), _AHEAD):
        source.opening = opening
        yield source


class MemberSource(Source):
    """A member of a tar, which can be read only in the order of the archive."""

    def __init__(self, source_id: int, stream: IO[bytes], limit: int) -> None:
        self.source_id = source_id
        self._stream = stream
        self._limit = limit

    def open(self) -> Opened:
        """See `Source`."""
        return contextlib.nullcontext(decompressed(self._stream, self._limit))
