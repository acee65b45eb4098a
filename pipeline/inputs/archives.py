"""Read members of archives in place; a damaged or hostile member affects no other.

Nothing is written to a path that a member's name gives, and links, devices and folders are not
followed: a name is only a label.
"""

from __future__ import annotations

import functools
import io
import tarfile
import zipfile
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import IO, Self

from tracelake.inputs.expand import Bounded
from tracelake.inputs.streams import (
    DECODE_ERRORS,
    FileRef,
    decompressed,
    open_file,
    stat_of,
    text_name,
)
from tracelake.storage import is_uri

# Types of headers that only give the name or the times of the next member.
_EXTENSION_BYTES = 1 << 20
_EXTENSIONS = frozenset(
    (
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    )
)


def is_zip(head: bytes) -> bool:
    """Return whether bytes start a zip archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Return whether decompressed bytes start a tar archive: its magic is at offset 257."""
    return head[257:262] == b"ustar"


class _Header(tarfile.TarInfo):
    """A header that raises an error if it is damaged, instead of ending the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _BAD_HEADERS as error:
            raise _TarError(f"damaged header: {error}") from error

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _EXTENSIONS and self.size > _EXTENSION_BYTES):
            raise _TarError("a header of an impossible size")
        read: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if read.size < 0:
            raise _TarError("a member of negative size")
        return read


_TarError = tarfile.ReadError
_BAD_HEADERS = (
    *(tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError),  # type: ignore[attr-defined]
    *(ValueError, OverflowError, IndexError, RecursionError),
)


def walk_tar(location: str, limit: int) -> Generator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield members of a tar, compressed or not, in one pass; regular files only have a stream.

    Each stream is valid until the next member is requested. Members that are not regular files have
    an empty stream: the caller says why it skips them.

    Args:
        limit: Bytes that the archive, and each member by itself, may expand to.
    """
    with open_file(location) as raw:
        stream, _ = decompressed(raw, limit)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, ignore_zeros=True) as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined] # there may be a million
                info.name = text_name(info.name)
                member = archive.extractfile(info) if info.isreg() else None
                # A sparse member has as many bytes as its header says, and they take no space.
                yield info, io.BytesIO() if member is None else _plain(Bounded(member, limit))


def _plain(stream: io.RawIOBase) -> IO[bytes]:
    return io.BufferedReader(stream)


def pass_by(members: Iterable[FileRef]) -> Generator[tuple[int, IO[bytes]]]:
    """Yield positions and streams of members of one tar, each exactly once, in order.

    If the archive ends or changes before a member, the stream of that member fails when it is read.
    """
    left = {m.position: m for m in members}
    first = next(iter(left.values()))
    try:
        with closing(walk_tar(first.readable, first.limit)) as passing:
            for position, (info, stream) in enumerate(passing):
                if position in left and info.name == left[position].member:
                    del left[position]
                    yield position, stream
    except DECODE_ERRORS:
        pass  # the remaining members report it
    for position in left:
        yield position, _plain(_Lost())


class _Lost(io.RawIOBase):
    """The stream of a member that is missing."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        del buffer
        raise EOFError("the archive ends or has changed before this member")


def zip_members(location: str) -> list[zipfile.ZipInfo]:
    """Return the directory of a zip archive.

    Raises:
        BadZipFile: The archive has no directory.
    """
    return _zip(location).infolist()


def open_zip_member(entry: FileRef) -> IO[bytes]:
    """Return the stream of a member of a zip archive.

    Raises:
        BadZipFile: It is damaged, encrypted, compressed in an unknown way, or missing.
    """
    archive = _zip(entry.readable)
    infos = archive.infolist()
    if entry.position >= len(infos) or infos[entry.position].filename != entry.member:
        raise zipfile.BadZipFile("the archive has changed")
    try:
        return archive.open(infos[entry.position])
    except (RuntimeError, ValueError) as error:
        raise zipfile.BadZipFile(str(error)) from error


def _zip(location: str) -> zipfile.ZipFile:
    return _zip_as_it_was(location, *stat_of(location))


@functools.lru_cache(maxsize=2)
def _zip_as_it_was(location: str, *_: int) -> zipfile.ZipFile:
    """Return an archive whose directory is read once, however many members are opened."""
    try:
        if is_uri(location):
            return zipfile.ZipFile(io.BufferedReader(open_file(location)))
        return zipfile.ZipFile(location)
    except (RuntimeError, ValueError) as error:
        raise zipfile.BadZipFile(str(error)) from error
