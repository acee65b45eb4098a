"""What a run is read from: inputs that can be opened, and members of a tar that pass by."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from pipeline.ingest.opening import Opened, open_entry
from pipeline.ingest.streams import Entry, decompressed, stat_of
from pipeline.stores import FIRST_BYTES, is_uri

# Objects of a store that are being opened at once, of one run.
_AHEAD = 16
_NOTHING = hashlib.sha256().hexdigest()


@dataclass(slots=True)
class Read:
    """What was found out about a source, whole once it was read to its end.

    Attributes:
        bytes, lines: Decompressed.
        content_hash: SHA-256 of the decompressed bytes, hex.
    """

    bytes: int = 0
    lines: int = 0
    content_hash: str = _NOTHING
    compression: str | None = None


class Source(ABC):
    """A source that is to be read.

    Attributes:
        weight: Bytes that reading it is worth, to report progress.
    """

    source_id: int
    weight: int = 0

    @abstractmethod
    def open(self) -> Opened:
        """The decompressed bytes and their compression."""

    def reopen(self) -> Opened | None:
        """The same again, patiently, to save what a damaged stream still holds, if that can be."""
        return None

    def changed(self) -> bool:
        """Whether it is no longer what it was when its reading was planned."""
        return False


class FileSource(Source):
    """An input that can be opened by itself."""

    def __init__(self, source_id: int, entry: Entry) -> None:
        self.source_id = source_id
        self.weight = entry.weight
        self._entry = entry
        self._opening: Future[Opened] | None = None

    def open_soon(self, executor: Executor) -> None:
        """Has it opened elsewhere, for `open` to wait for."""
        self._opening = executor.submit(open_entry, self._entry)

    def open(self) -> Opened:
        """See `Source`."""
        opening, self._opening = self._opening, None
        return opening.result() if opening else open_entry(self._entry)

    def reopen(self) -> Opened:
        """See `Source`."""
        return open_entry(self._entry, patient=True)

    def changed(self) -> bool:
        """See `Source`."""
        if is_uri(self._entry.location) and self._entry.size <= FIRST_BYTES:
            return False  # it came in one piece, of one state of the object
        try:
            size, mtime_ns, _ = stat_of(self._entry.location)
        except OSError:
            return True
        return (size, mtime_ns) != (self._entry.size, self._entry.mtime_ns)


def opened_ahead(sources: Iterable[FileSource]) -> Iterator[FileSource]:
    """Sources in their order, each being opened while some before it are read.

    To open an object of a store takes tens of milliseconds and nothing of a processor.
    """
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="open") as pool:
        coming: deque[FileSource] = deque()
        for source in sources:
            source.open_soon(pool)
            coming.append(source)
            if len(coming) > _AHEAD:
                yield coming.popleft()
        yield from coming


class MemberSource(Source):
    """A member of a tar, which can be read only while it passes."""

    def __init__(self, source_id: int, stream: IO[bytes], limit: int) -> None:
        self.source_id = source_id
        self._stream = stream
        self._limit = limit

    def open(self) -> Opened:
        """See `Source`."""
        return contextlib.nullcontext(decompressed(self._stream, self._limit))
