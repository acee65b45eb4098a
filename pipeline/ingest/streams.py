"""Opens an input as a stream of decompressed bytes, wherever it lies: file, archive member."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

import pyarrow as pa
from isal import igzip

# What a damaged or truncated stream raises, over all codecs.
DECODE_ERRORS = (EOFError, OSError, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression: how it is recognised and opened.

    Attributes:
        patient: Opens a damaged stream so that it gives all it holds before it fails.
    """

    name: str
    suffix: str
    magic: bytes
    open: Callable[[IO[bytes]], IO[bytes]]
    patient: Callable[[IO[bytes]], IO[bytes]]


def _open_gzip(raw: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], igzip.IGzipFile(fileobj=raw, mode="rb"))  # type: ignore[no-untyped-call]


def _open_gzip_patiently(raw: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))


def _open_zstd(raw: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))


CODECS = (
    Codec("gzip", ".gz", b"\x1f\x8b", _open_gzip, _open_gzip_patiently),
    Codec("zstd", ".zst", b"\x28\xb5\x2f\xfd", _open_zstd, _open_zstd),
    Codec("bzip2", ".bz2", b"BZh", bz2.BZ2File, bz2.BZ2File),
    Codec("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMAFile, lzma.LZMAFile),
)
_SUFFIXES = tuple(codec.suffix for codec in CODECS)
_MAGICS = tuple(codec.magic for codec in CODECS)
_MAGIC_BYTES = max(len(magic) for magic in _MAGICS)


class Entry(NamedTuple):
    """One input, before anything is known of its content.

    Attributes:
        path: Relative to the input root, posix: the name it has in the lake.
        member: Name inside the archive `path`; None for a plain file.
        location: Where the file lies on disk.
        size, mtime_ns, inode: What the file system says of `location`.
        weight: Bytes to be read for this input, as far as known: for progress.
        position: Order within the archive.
        packed: Member of a tar, which is read from its beginning: members are taken as they pass.
    """

    path: str
    member: str | None
    location: str
    size: int
    mtime_ns: int
    inode: int
    weight: int
    position: int = 0
    packed: bool = False

    @property
    def label(self) -> str:
        """Path and member as one posix path."""
        return self.path if self.member is None else f"{self.path}/{self.member}"


def codec_of(head: bytes) -> Codec | None:
    """The compression these first bytes belong to, by content and never by suffix."""
    if not head.startswith(_MAGICS):  # nearly always: there may be a hundred thousand files
        return None
    return next(codec for codec in CODECS if head.startswith(codec.magic))


def strip_suffix(path: str) -> str:
    """The path without the suffix of a compression."""
    lowered = path.lower()
    if not lowered.endswith(_SUFFIXES):
        return path
    suffix = next(suffix for suffix in _SUFFIXES if lowered.endswith(suffix))
    return path[: len(path) - len(suffix)]


def decompressed(raw: IO[bytes], *, patient: bool = False) -> tuple[IO[bytes], Codec | None]:
    """The bytes behind a stream that may be compressed, and with what."""
    if isinstance(raw, io.FileIO) and codec_of(os.pread(raw.fileno(), _MAGIC_BYTES, 0)) is None:
        return cast(IO[bytes], raw), None
    peekable = (
        raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw))
    )
    codec = codec_of(peekable.peek(_MAGIC_BYTES)[:_MAGIC_BYTES])
    if codec is None:
        return peekable, None
    return (codec.patient if patient else codec.open)(peekable), codec


Opened = AbstractContextManager[tuple[IO[bytes], Codec | None]]
"""Decompressed bytes of an input and its compression."""


def open_entry(entry: Entry, *, patient: bool = False) -> Opened:
    """Opens an input.

    A member of a tar is found by reading up to it; use `walk_tar` for many.

    Args:
        patient: The stream is damaged: see `Codec.patient`.
    """
    if entry.member is not None:
        return _open_member(entry, patient=patient)
    raw = io.FileIO(entry.location)
    try:
        return _Plain(raw, *decompressed(raw, patient=patient))
    except BaseException:
        raw.close()
        raise


class _Plain(AbstractContextManager[tuple[IO[bytes], Codec | None]]):
    """A file of its own; there may be a hundred thousand, so that this is no generator."""

    __slots__ = ("_opened", "_raw")

    def __init__(self, raw: io.FileIO, stream: IO[bytes], codec: Codec | None) -> None:
        self._raw = raw
        self._opened = stream, codec

    def __enter__(self) -> tuple[IO[bytes], Codec | None]:
        return self._opened

    def __exit__(self, *error: object) -> None:
        self._raw.close()


@contextlib.contextmanager
def _open_member(entry: Entry, *, patient: bool) -> Iterator[tuple[IO[bytes], Codec | None]]:
    with contextlib.ExitStack() as stack:
        if not entry.packed:
            archive = stack.enter_context(zipfile.ZipFile(entry.location))
            raw = stack.enter_context(archive.open(archive.infolist()[entry.position]))
        else:
            members = stack.enter_context(contextlib.closing(walk_tar(entry.location)))
            raw = next(s for i, (_, s) in enumerate(members) if i == entry.position)
        yield decompressed(raw, patient=patient)


def is_zip(head: bytes) -> bool:
    """Whether bytes start a zip archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Whether decompressed bytes start a tar archive: its magic stands at offset 257."""
    return head[257:262] == b"ustar"


def walk_tar(location: str | Path) -> Generator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Members of a tar, compressed or not, in one pass; regular files only have a stream.

    Each stream is valid until the next member is asked for. Members that are no regular file come
    with an empty stream: the caller says why it skips them.
    """
    with open(location, "rb") as raw:
        stream, _ = decompressed(raw)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for info in archive:
                member = archive.extractfile(info) if info.isreg() else None
                yield info, member if member is not None else io.BytesIO()
