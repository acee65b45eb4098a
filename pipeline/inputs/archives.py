"""Read the first bytes of inputs, and members of archives in place.

A damaged or hostile member affects no other. Nothing is written to a path that a member's name
gives, and links, devices and folders are not followed: a name is only a label.
"""

from __future__ import annotations

import functools
import io
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import IO, Self, cast

from tracelake.formats import HEAD_BYTES
from tracelake.inputs import streams
from tracelake.inputs.discover import Skip
from tracelake.inputs.streams import DECODE_ERRORS, Begun, FileRef
from tracelake.storage.files import StoredFile
from tracelake.storage.store_path import is_uri

Head = tuple[FileRef, bytes]
"""An input with its first decompressed bytes, ready to be sniffed."""

# Types of headers that only give the name or the times of the next member.
_EXTENSIONS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_EXTENSION_BYTES = 1 << 20


def is_zip(head: bytes) -> bool:
    """Return whether bytes start a zip archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Return whether decompressed bytes start a tar archive: its magic is at offset 257."""
    return head[257:262] == b"ustar"


def open_heads(
    entry: FileRef, begun: Callable[[], Begun] | None = None, head: bytes | None = None
) -> Iterator[Head | Skip]:
    """Yield first bytes of an input: one for a file, one per member for an archive.

    Args:
        begun: Gives the result of `Copies.begin`, for a file of a store.
        head: What `first_bytes` gave, if that was asked already.
    """
    try:
        entry, file = begun() if begun else (entry, None)
        if file is None:
            if head is None:
                head = streams.first_bytes(entry.readable)
            if not (is_zip(head) or is_tar(head) or streams.codec_of(head)):
                yield _head_or_skip(entry, head)
                return
        with file or streams.open_file(entry) as raw:
            head = raw.read(HEAD_BYTES)
            zipped = is_zip(head)
            if streams.codec_of(head) is not None:
                # Referenced so that it is not finalised before `raw` closes.
                head, _streams = streams.decompressed_head(raw, entry.limit)
        if zipped:
            yield from _zip_heads(entry)
        elif is_tar(head):
            yield from _tar_heads(entry)
        else:
            yield _head_or_skip(entry, head)
    except DECODE_ERRORS as error:
        data = isinstance(error, zipfile.BadZipFile) and head and _is_data(head)
        yield Skip(entry.path, entry.member, "no_format") if data else _unreadable(entry, error)


def _is_data(head: bytes) -> bool:
    """Return whether a zip begins as files of PyTorch (checkpoints) or NumPy do."""
    length = int.from_bytes(head[26:28], "little")
    return head[30 : 30 + length].endswith((b"/data.pkl", b"/byteorder", b"version", b".npy"))


def _unreadable(entry: FileRef, error: Exception) -> Skip:
    if isinstance(error, streams.ExpandedTooFarError):
        return Skip(entry.path, entry.member, "expands_too_far", lasting=False)
    refused = isinstance(error, OSError) and error.errno is not None
    return Skip(entry.path, entry.member, "unreadable", lasting=not refused)


def _head_or_skip(entry: FileRef, head: bytes) -> Head | Skip:
    return (entry, head) if head else Skip(entry.path, entry.member, "empty")


def _member_head(entry: FileRef, stream: IO[bytes]) -> Head | Skip:
    try:
        inner, _ = streams.decompressed(stream, entry.limit)
        head = streams.read_head(inner)
    except DECODE_ERRORS as error:
        return _unreadable(entry, error)
    if is_tar(head) or is_zip(head):
        return Skip(entry.path, entry.member, "nested_archive")
    return _head_or_skip(entry, head)


def _zip_heads(entry: FileRef) -> Iterator[Head | Skip]:
    left = entry.limit
    for position, info in enumerate(_zip(entry).infolist()):
        if info.is_dir():
            continue
        if info.file_size > left:  # no member ever gives more than it declares
            yield Skip(entry.path, info.filename, "expands_too_far", lasting=False)
            continue
        left -= info.file_size
        member = entry._replace(member=info.filename, weight=info.file_size, position=position)
        try:
            with open_zip_member(member) as stream:
                yield _member_head(member, stream)
        except DECODE_ERRORS as error:
            yield _unreadable(member, error)


def _tar_heads(entry: FileRef) -> Iterator[Head | Skip]:
    try:
        for position, (info, stream) in enumerate(walk_tar(entry)):
            member = entry._replace(
                member=info.name, weight=info.size, position=position, packed=True
            )
            if info.isreg():
                yield _member_head(member, stream)
            elif not info.isdir():
                yield Skip(entry.path, info.name, "not_a_file")
    except DECODE_ERRORS as error:
        yield _unreadable(entry, error)


class _Header(tarfile.TarInfo):
    """A header that raises an error if it is damaged, instead of ending the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _BAD_HEADERS as error:
            raise tarfile.ReadError(f"damaged header: {error}") from error

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _EXTENSIONS and self.size > _EXTENSION_BYTES):
            raise tarfile.ReadError("a header of an impossible size")
        read: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        if read.size < 0:
            raise tarfile.ReadError("a member of negative size")
        return read


# Of the system that made a zip archive: some programs there write the folders of a member with \.
_WINDOWS = 0
_BAD_HEADERS = (
    *(tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError),  # type: ignore[attr-defined]
    *(ValueError, OverflowError, IndexError, RecursionError),
)


def walk_tar(entry: FileRef) -> Generator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield members of a tar, compressed or not, in one pass; regular files only have a stream.

    Each stream is valid until the next member is requested. Members that are not regular files have
    an empty stream: the caller says why it skips them. The archive, and each member by itself, may
    expand to the limit of the entry.
    """
    with streams.open_file(entry) as raw:
        stream, _ = streams.decompressed(raw, entry.limit)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, ignore_zeros=True) as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined] # there may be a million
                info.name = streams.text_name(info.name)
                member = archive.extractfile(info) if info.isreg() else None
                # A sparse member has as many bytes as its header says, and they take no space.
                yield info, io.BufferedReader(streams.Bounded(member or io.BytesIO(), entry.limit))


def pass_by(members: Iterable[FileRef]) -> Generator[tuple[int, IO[bytes]]]:
    """Yield positions and streams of members of one tar, each exactly once, in order.

    If the archive ends or changes before a member, the stream of that member fails when it is read.
    """
    left = {m.position: m for m in members}
    first = next(iter(left.values()))
    try:
        with closing(walk_tar(first)) as passing:
            for position, (info, stream) in enumerate(passing):
                if position in left and info.name == left[position].member:
                    del left[position]
                    yield position, stream
    except DECODE_ERRORS:
        pass  # the remaining members report it
    for position in left:
        yield position, io.BufferedReader(_Lost())


class _Lost(io.RawIOBase):
    """The stream of a member that is missing."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        del buffer
        raise EOFError("the archive ends or has changed before this member")


def open_zip_member(entry: FileRef) -> IO[bytes]:
    """Return the stream of a member of a zip archive.

    Raises:
        BadZipFile: It is damaged, encrypted, compressed in an unknown way, or missing.
    """
    archive = _zip(entry)
    infos = archive.infolist()
    if entry.position >= len(infos) or infos[entry.position].filename != entry.member:
        raise zipfile.BadZipFile("the archive has changed")
    try:
        return archive.open(infos[entry.position])
    except (RuntimeError, ValueError) as error:
        raise zipfile.BadZipFile(str(error)) from error


def is_zip_as_listed(entry: FileRef) -> bool:
    """Return whether a zip archive of a store is what was listed, as far as it has been read."""
    try:
        reader = cast(io.BufferedReader, _zip(entry).fp)
        return cast(StoredFile, reader.raw).as_listed
    except DECODE_ERRORS:
        return False


def _zip(entry: FileRef) -> zipfile.ZipFile:
    if is_uri(entry.readable):
        return _zip_as_it_was(entry.readable, entry.size, entry.mtime_ns, 0)
    return _zip_as_it_was(entry.readable, *streams.stat_of(entry.readable))


@functools.lru_cache(maxsize=2)
def _zip_as_it_was(location: str, size: int, mtime_ns: int, _inode: int) -> zipfile.ZipFile:
    """Return an archive whose directory is read once, however many members are opened."""
    try:
        archive = zipfile.ZipFile(
            io.BufferedReader(streams.open_stored(location, size, mtime_ns))
            if is_uri(location)
            else location
        )
    except (RuntimeError, ValueError) as error:
        raise zipfile.BadZipFile(str(error)) from error
    for info in archive.infolist():
        if info.create_system == _WINDOWS:
            info.filename = info.filename.replace("\\", "/")
    return archive
