"""Open inputs and members of archives as streams of decompressed bytes, some ahead of use."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import IO

from tracelake.inputs import streams
from tracelake.inputs.ahead import prefetch
from tracelake.inputs.archives import is_zip_as_listed, open_zip_member, pass_by
from tracelake.inputs.streams import Codec, FileRef, RawFile
from tracelake.storage.files import StoredFile
from tracelake.storage.store_path import is_uri

Opened = AbstractContextManager[tuple[IO[bytes], Codec | None]]
"""Decompressed bytes of an input and its compression."""

# Objects of a store that one run opens at once.
_AHEAD = 16
# Inputs up to this size are read at once, not in pieces.
_SMALL = 1 << 18
_NOTHING = hashlib.sha256().hexdigest()


def open_entry(entry: FileRef, *, patient: bool = False) -> Opened:
    """Open an input.

    A member of a tar is found by reading the tar up to it; use `pass_by` for many.

    Args:
        patient: The stream is damaged: see `Codec.patient`.
    """
    if entry.member is not None:
        return _open_member(entry, patient=patient)
    raw = streams.open_file(entry)
    try:
        return _Plain(raw, *streams.decompressed(raw, entry.limit, patient=patient))
    except BaseException:
        raw.close()
        raise


class _Plain(AbstractContextManager[tuple[IO[bytes], Codec | None]]):
    """A plain file. A class is faster than a generator; there may be 100,000 files."""

    __slots__ = ("_opened", "raw")

    def __init__(self, raw: RawFile, stream: IO[bytes], codec: Codec | None) -> None:
        self.raw = raw
        self._opened = stream, codec

    def __enter__(self) -> tuple[IO[bytes], Codec | None]:
        return self._opened

    def __exit__(self, *error: object) -> None:
        self.raw.close()


@contextlib.contextmanager
def _open_member(entry: FileRef, *, patient: bool) -> Iterator[tuple[IO[bytes], Codec | None]]:
    with contextlib.ExitStack() as stack:
        if entry.packed:
            members = stack.enter_context(contextlib.closing(pass_by([entry])))
            _, raw = next(members)
        else:
            raw = stack.enter_context(open_zip_member(entry))
        yield streams.decompressed(raw, entry.limit, patient=patient)


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


class Source:
    """An input that is to be read.

    Attributes:
        weight: Bytes to count for progress when it is read.
        opening: Opens it already; None if nothing does.
    """

    def __init__(self, source_id: int, entry: FileRef, member: IO[bytes] | None = None) -> None:
        """Define a source.

        Args:
            member: The stream of a member of a tar, which is read in the order of the archive.
        """
        self.source_id = source_id
        self.entry = entry
        self.weight = entry.weight if member is None else 0
        self._member = member
        self.opening: Future[Opened] | None = None
        self._stored: StoredFile | None = None

    def read_whole(self, view: memoryview) -> int | None:
        """Read it whole to the beginning of a view, if that is faster than opening it.

        Returns:
            Its number of bytes, unchanged while it was read; None if it must be opened.
        """
        entry = self.entry
        plain = entry.member is None and self.opening is None
        if plain and entry.size < min(len(view), _SMALL) and streams.read_as_planned(entry, view):
            return entry.size
        return None

    def open(self) -> Opened:
        """Return the decompressed bytes and their compression."""
        if self._member is not None:
            return contextlib.nullcontext(streams.decompressed(self._member, self.entry.limit))
        opening, self.opening = self.opening, None
        opened = opening.result() if opening else open_entry(self.entry)
        if isinstance(opened, _Plain) and isinstance(opened.raw, StoredFile):
            self._stored = opened.raw
        return opened

    def reopen(self) -> Opened | None:
        """Open it again in a way that salvages the rest of a damaged stream, if possible."""
        return open_entry(self.entry, patient=True) if self._member is None else None

    def changed(self) -> bool:
        """Return whether it has changed since the plan."""
        entry = self.entry
        if entry.copy or self._member is not None:
            return False
        if self._stored is not None:
            return not self._stored.as_listed
        if is_uri(entry.location):
            return not is_zip_as_listed(entry)
        try:
            size, mtime_ns, _ = streams.stat_of(entry.location)
        except OSError:
            return True
        return (size, mtime_ns) != (entry.size, entry.mtime_ns)


def opened_ahead(sources: Iterable[Source]) -> Iterator[Source]:
    """Yield sources of a store in order, each opened while earlier ones are read."""
    for source, opening in prefetch(sources, lambda one: partial(open_entry, one.entry), _AHEAD):
        source.opening = opening
        yield source
