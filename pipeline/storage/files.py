"""Read an object of a store as a file."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING

from tracelake.storage.objects import read, stat
from tracelake.storage.store_path import StorePath

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Sizes of read-ahead; the first piece may be enough, e.g. for a head.
FIRST_BYTES = 64 << 10
_LARGEST_BYTES = 8 << 20
# Files up to this size are read whole: a request costs as much.
WHOLE_BYTES = 1 << 20


class StoredFile(io.RawIOBase):
    """A file of a store that can be read from any position.

    Read-ahead grows from piece to piece, because a request costs as much as a megabyte. Threads may
    call `range` at once.

    Attributes:
        as_listed: All that was read is of one state of the object: that which was listed, if its
            size and date were given.

    Raises:
        FileNotFoundError: It does not exist.
        StoreError: The store fails.
    """

    def __init__(
        self,
        place: StorePath,
        size: int | None = None,
        mtime_ns: int | None = None,
        *,
        ahead: int = FIRST_BYTES,
    ) -> None:
        """Open a file; one whose size is known is first requested when it is read.

        Args:
            size: As listed.
            mtime_ns: As listed.
            ahead: Size of the first piece.
        """
        super().__init__()
        self._place = place
        if size is None:
            found = stat(place)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such object in the store", place.uri)
            size = found.size
        self.size = size
        self.as_listed = True
        # Headers have whole seconds, some listings more.
        self._listed = None if mtime_ns is None else (size, mtime_ns // 10**9)
        self._tag: str | None = None
        self._at = 0
        self._piece = b""
        self._piece_at = 0
        self._ahead = ahead

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position in the file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer as far as bytes remain.

        Raises:
            StoreError: The store fails.
        """
        if self._at >= self.size:
            return 0
        view = memoryview(buffer).cast("B")
        inside = self._at - self._piece_at
        if not 0 <= inside < len(self._piece):
            count = max(self._ahead, view.nbytes)
            # A reader that goes to the end goes back from there: to a footer, to a directory.
            first = self._at if inside == len(self._piece) else min(self._at, self.size - count)
            self._piece_at = max(0, first)
            self._piece = self.range(self._piece_at, count)
            self._ahead = min(4 * self._ahead, _LARGEST_BYTES)
            inside = self._at - self._piece_at
        count = max(0, min(view.nbytes, len(self._piece) - inside))
        view[:count] = self._piece[inside : inside + count]
        self._at += count
        return count

    def range(self, start: int, count: int) -> bytes:
        """Return bytes from a position, fewer at the end of the file, in one request.

        Raises:
            EOFError: The file has become shorter.
            FileNotFoundError: It does not exist any more.
            StoreError: The store fails.
        """
        wanted = min(count, self.size - start)
        if wanted <= 0:
            return b""
        try:
            data, found = read(self._place, start, start + wanted)
        except (EOFError, FileNotFoundError):
            self.as_listed = False
            raise
        self._tag = self._tag or found.tag
        seen = found.size, found.mtime_ns // 10**9
        if found.tag != self._tag or seen != (self._listed or seen):
            self.as_listed = False
        self.size = found.size
        return data

    def close(self) -> None:
        """Free the memory."""
        self._piece = b""
        super().close()
