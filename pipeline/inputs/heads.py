"""Read first bytes of inputs: of plain files, decompressed files, archive members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from tracelake.formats import HEAD_BYTES
from tracelake.inputs.archives import is_tar, is_zip, open_zip_member, walk_tar, zip_members
from tracelake.inputs.discover import Skip
from tracelake.inputs.expand import ExpandedTooFarError
from tracelake.inputs.streams import (
    DECODE_ERRORS,
    Begun,
    FileRef,
    RawFile,
    codec_of,
    decompressed,
    first_bytes,
    open_file,
)

Head = tuple[FileRef, bytes]
"""An input with its first decompressed bytes, ready to be sniffed."""


def _plain_head(entry: FileRef) -> Head | Skip | None:
    """Return first bytes of a local plain file; None for an archive or compressed file."""
    try:
        head = first_bytes(entry.readable, HEAD_BYTES)
    except OSError as error:
        return _unreadable(entry, error)
    if is_zip(head) or is_tar(head) or codec_of(head):
        return None
    return _head_or_skip(entry, head)


def open_heads(entry: FileRef, begun: Callable[[], Begun] | None = None) -> Iterator[Head | Skip]:
    """Yield first bytes of an input: one for a file, one per member for an archive.

    Args:
        begun: Gives the result of `Copies.begin`, for a file of a store.
    """
    try:
        entry, file = begun() if begun else (entry, None)
        if file is None and (plain := _plain_head(entry)):
            yield plain
            return
        with file or open_file(entry.readable) as raw:
            head = raw.read(HEAD_BYTES)
            if is_zip(head):
                yield from _zip_heads(entry)
                return
            if codec_of(head) is not None:
                # Referenced so that it is not finalised before `raw` closes.
                head, _streams = _decompressed_head(raw, entry.limit)
        if is_tar(head):
            yield from _tar_heads(entry)
        else:
            yield _head_or_skip(entry, head)
    except DECODE_ERRORS as error:
        yield _unreadable(entry, error)


def _decompressed_head(raw: RawFile, limit: int) -> tuple[bytes, list[IO[bytes]]]:
    """Return first bytes, and the streams that have read them."""
    raw.seek(0)
    stream, _ = decompressed(raw, limit)
    try:
        return _read_head(stream), [stream]
    except DECODE_ERRORS:
        raw.seek(0)
        patient, _ = decompressed(raw, limit, patient=True)
        # What comes before the damage, byte by byte.
        return _read_head(patient, step=1), [stream, patient]


def _unreadable(entry: FileRef, error: Exception) -> Skip:
    if isinstance(error, ExpandedTooFarError):
        return Skip(entry.path, entry.member, "expands_too_far", lasting=False)
    refused = isinstance(error, OSError) and error.errno is not None
    return Skip(entry.path, entry.member, "unreadable", lasting=not refused)


def _read_head(stream: IO[bytes], step: int = 8192) -> bytes:
    """Read up to `HEAD_BYTES` bytes; of a damaged stream, what can be decoded.

    Args:
        step: Bytes that are read at once; a damaged piece is lost as a whole.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        while size < HEAD_BYTES and (piece := stream.read(min(step, HEAD_BYTES - size))):
            pieces.append(piece)
            size += len(piece)
    except DECODE_ERRORS:
        if not pieces:
            raise
    return b"".join(pieces)


def _head_or_skip(entry: FileRef, head: bytes) -> Head | Skip:
    return (entry, head) if head else Skip(entry.path, entry.member, "empty")


def _member_head(entry: FileRef, stream: IO[bytes]) -> Head | Skip:
    try:
        inner, _ = decompressed(stream, entry.limit)
        head = _read_head(inner)
    except DECODE_ERRORS as error:
        return _unreadable(entry, error)
    if is_tar(head) or is_zip(head):
        return Skip(entry.path, entry.member, "nested_archive")
    return _head_or_skip(entry, head)


def _zip_heads(entry: FileRef) -> Iterator[Head | Skip]:
    left = entry.limit
    for position, info in enumerate(zip_members(entry.readable)):
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
        for position, (info, stream) in enumerate(walk_tar(entry.readable, entry.limit)):
            member = entry._replace(
                member=info.name, weight=info.size, position=position, packed=True
            )
            if info.isreg():
                yield _member_head(member, stream)
            elif not info.isdir():
                yield Skip(entry.path, info.name, "not_a_file")
    except DECODE_ERRORS as error:
        yield _unreadable(entry, error)
