"""Open inputs on disk or in a store, and decompress streams."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import itertools
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
from isal import igzip, isal_zlib

from tracelake.base import files
from tracelake.formats import HEAD_BYTES
from tracelake.formats.ledger import escape
from tracelake.storage.files import FIRST_BYTES, WHOLE_BYTES, StoredFile
from tracelake.storage.store_path import is_uri, listed_place

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

RawFile = io.FileIO | StoredFile
"""A file on disk, or of a store."""

_IsalError = cast(type[Exception], isal_zlib.error)

# Errors of damaged or truncated streams, over all codecs.
DECODE_ERRORS = (
    *(EOFError, OSError, zlib.error, _IsalError, lzma.LZMAError),
    *(zipfile.BadZipFile, tarfile.TarError),
)


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression: how it is recognised and opened.

    Attributes:
        patient: Opens a damaged stream so that it gives everything readable before it fails.
    """

    name: str
    suffix: str
    magic: bytes
    open: Callable[[IO[bytes]], Any]
    patient: Callable[[IO[bytes]], Any]


_open_zstd = functools.partial(pa.CompressedInputStream, compression="zstd")
CODECS = (
    Codec("gzip", ".gz", b"\x1f\x8b", igzip.open, gzip.open),
    Codec("zstd", ".zst", b"\x28\xb5\x2f\xfd", _open_zstd, _open_zstd),
    Codec("bzip2", ".bz2", b"BZh", bz2.BZ2File, bz2.BZ2File),
    Codec("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMAFile, lzma.LZMAFile),
)
_SUFFIXES = tuple(codec.suffix for codec in CODECS)
_MAGICS = tuple(codec.magic for codec in CODECS)
# Do not wait if the file has become a pipe meanwhile.
_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# Bytes of all copies of an ingest.
_COPIED_BYTES = 1 << 30
_MAGIC_BYTES = max(len(magic) for magic in _MAGICS)


class FileRef(NamedTuple):
    """One input, before anything is known of its content.

    Attributes:
        path: Relative to the input root, posix: the name it has in the lake.
        member: Name inside the archive `path`; None for a plain file.
        location: Path of the file on disk, or its URI.
        size, mtime_ns, inode: What the file system says of `location`.
        weight: Bytes to be read for this input, as far as known: for progress.
        position: Order within the archive.
        packed: Member of a tar, which is read from its beginning, member by member.
        limit: Bytes that the file at `location` may expand to.
        copy: Path of a whole copy on this machine; empty if there is none.
    """

    path: str
    member: str | None
    location: str
    size: int
    mtime_ns: int
    inode: int
    weight: int
    limit: int
    position: int = 0
    packed: bool = False
    copy: str = ""

    @property
    def readable(self) -> str:
        """Return where its bytes are read: the copy, if there is one."""
        return self.copy or self.location

    @property
    def label(self) -> str:
        """Path and member as one posix path."""
        return self.path if self.member is None else f"{self.path}/{self.member}"


def text_name(name: str) -> str:
    r"""Return a name as the lake stores it: `\\xNN` for non-UTF-8 bytes, and `\\\\`."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return escape(os.fsencode(name))
    return name


def codec_of(head: bytes) -> Codec | None:
    """Return the compression of these first bytes, by content and never by suffix."""
    if not head.startswith(_MAGICS):  # nearly always; a fast path for many files
        return None
    return next(codec for codec in CODECS if head.startswith(codec.magic))


def strip_suffix(path: str) -> str:
    """Return the path without the suffix of a compression."""
    stem, dot, suffix = path.rpartition(".")
    return stem if dot + suffix.lower() in _SUFFIXES else path


def open_file(entry: FileRef) -> RawFile:
    """Open a file as it was found; do not wait if it has become a pipe meanwhile.

    Raises:
        OSError: It cannot be opened.
        StoreError: The store does not answer.
    """
    if is_uri(entry.readable):
        return open_stored(entry.location, entry.size, entry.mtime_ns)
    return io.FileIO(
        entry.readable, opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
    )


def open_stored(uri: str, size: int, mtime_ns: int, ahead: int = WHOLE_BYTES) -> StoredFile:
    """Return a file of a store as it was listed; it is requested when it is read.

    Args:
        ahead: Bytes of the first request.
    """
    return StoredFile(listed_place(uri), size, mtime_ns, ahead=ahead)


def first_bytes(location: str) -> bytes:
    """Read the head of a file that is not in a store, opened as by `open_file`.

    Raises:
        OSError: It cannot be read.
    """
    opened = os.open(location, _READ_ONLY)
    try:
        return os.read(opened, HEAD_BYTES)
    finally:
        os.close(opened)


def read_as_planned(entry: FileRef, view: memoryview) -> bool:
    """Read a file to the beginning of a view at once, if it has not changed since it was found.

    Returns True only for a file with `entry.size` bytes, uncompressed and not in a store; otherwise
    the content of the view is undefined.
    """
    try:
        opened = os.open(entry.readable, _READ_ONLY)
        try:
            count = os.readv(opened, [view[: entry.size + 1]])
            status = os.fstat(opened)
        finally:
            os.close(opened)
    except OSError:
        return False
    state = (count, status.st_size, status.st_mtime_ns)
    if state != (entry.size, entry.size, entry.mtime_ns):
        return False
    return codec_of(bytes(view[:_MAGIC_BYTES])) is None


Begun = tuple[FileRef, RawFile | None]
"""A small file with its copy, or any other with a stream that has begun to read."""


class Copies:
    """Copies of small files of a store on this machine, so that each is requested once.

    Args:
        folder: Private folder; made with the first copy.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = _COPIED_BYTES
        self._numbers = itertools.count()

    def begin(self, entry: FileRef) -> Begun:
        """Begin to read a file; threads may call it at once.

        Raises:
            OSError: It cannot be read.
            StoreError: The store does not answer.
        """
        room = entry.size <= self._left
        # Without room for a copy it is requested again, so that its beginning must do.
        ahead = WHOLE_BYTES if room and entry.size <= WHOLE_BYTES else FIRST_BYTES
        file = open_stored(entry.location, entry.size, entry.mtime_ns, ahead)
        if entry.size <= ahead:
            content = file.read()
            if room and file.as_listed and (copy := self._put(content, entry.mtime_ns)):
                file.close()
                return entry._replace(copy=copy), None
        else:
            file.read(1)
        file.seek(0)
        return entry, file

    def _put(self, content: bytes, mtime_ns: int) -> str | None:
        """Return the path of a new copy; None if the disk does not take it."""
        self._left -= len(content)
        copy = self._folder / str(next(self._numbers))
        try:
            files.make_folder(self._folder)
            files.write(copy, content)
            os.utime(copy, ns=(mtime_ns, mtime_ns))
        except OSError:
            self._left = 0  # the rest of the disk is for what the command writes
            files.remove(copy)
            return None
        return str(copy)


def stat_of(location: str) -> tuple[int, int, int]:
    """Return size, mtime and inode of a file that is not in a store.

    Raises:
        OSError: It no longer exists.
    """
    status = os.stat(location)
    return status.st_size, status.st_mtime_ns, status.st_ino


def decompressed(
    raw: IO[bytes] | io.RawIOBase, limit: int, *, patient: bool = False
) -> tuple[IO[bytes], Codec | None]:
    """Return the decompressed bytes of a stream, and its compression.

    Args:
        limit: Bytes that it may expand to.
        patient: The stream is damaged: see `Codec.patient`.
    """
    if isinstance(raw, io.FileIO) and codec_of(os.pread(raw.fileno(), _MAGIC_BYTES, 0)) is None:
        return cast(IO[bytes], raw), None
    peekable = (
        raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))
    )
    codec = codec_of(peekable.peek(_MAGIC_BYTES)[:_MAGIC_BYTES])
    if codec is None:
        return peekable, None
    stream = (codec.patient if patient else codec.open)(peekable)
    return cast(IO[bytes], Bounded(stream, limit)), codec


class ExpandedTooFarError(EOFError):
    """A stream gives more bytes than allowed."""


class Bounded(io.RawIOBase):
    """A stream that fails after its first `limit` bytes if there are more."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer as far as the limit allows.

        Raises:
            ExpandedTooFarError: There are more bytes than the limit.
        """
        view = memoryview(buffer)
        if self._left == 0 and view.nbytes:
            if self._stream.read(1):
                raise ExpandedTooFarError("expands further than --max-expand allows")
            return 0
        count: int = cast(io.RawIOBase, self._stream).readinto(view[: self._left]) or 0
        self._left -= count
        return count


def decompressed_head(raw: RawFile, limit: int) -> tuple[bytes, list[IO[bytes]]]:
    """Return first decompressed bytes of a file, damaged or not, and the streams that read them.

    Args:
        limit: Bytes that it may expand to.
    """
    raw.seek(0)
    stream, _ = decompressed(raw, limit)
    try:
        return read_head(stream), [stream]
    except DECODE_ERRORS:
        raw.seek(0)
        patient, _ = decompressed(raw, limit, patient=True)
        # What comes before the damage, byte by byte.
        return read_head(patient, step=1), [stream, patient]


def read_head(stream: IO[bytes], step: int = 8192) -> bytes:
    """Read the first bytes that formats are told by; of a damaged stream, what can be decoded.

    Args:
        step: Bytes that are read at once; a damaged piece is lost as a whole.
    """
    pieces: list[bytes] = []
    left = HEAD_BYTES
    try:
        while left and (piece := stream.read(min(step, left))):
            pieces.append(piece)
            left -= len(piece)
    except DECODE_ERRORS:
        if not pieces:
            raise
    return b"".join(pieces)
