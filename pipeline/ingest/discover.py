"""Finds inputs: files, directories, globs, archives, standard input; names what it passes over."""

from __future__ import annotations

import glob
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from pipeline.errors import InputError
from pipeline.formats import HEAD_BYTES
from pipeline.ingest.archives import (
    is_tar,
    is_zip,
    open_zip_member,
    walk_tar,
    zip_members,
    zip_size,
)
from pipeline.ingest.expand import ExpandedTooFarError, Expansion
from pipeline.ingest.names import text_name
from pipeline.ingest.stored_inputs import StoredRoot, hidden_part, stored_root
from pipeline.ingest.streams import (
    DECODE_ERRORS,
    Entry,
    codec_of,
    decompressed,
    first_bytes,
    open_file,
)
from pipeline.stores import is_uri

STANDARD_INPUT = "-"

# Why an input is no trace: the closed list of `skipped.reason`.
SKIP_REASONS = {
    "empty": "The file has no bytes.",
    "no_format": "No format recognises the content; see `tracelake formats`.",
    "no_records": "The format that was forced or chosen found no record in it.",
    "ambiguous": "Several formats claim the content; choose one with --input-format.",
    "unreadable": "The operating system or the decompressor refuses to read it.",
    "expands_too_far": "It decompresses to more than --max-expand allows, the archive as a whole.",
    "not_a_file": "A device, socket, pipe or link to a directory; only regular files are read.",
    "hidden": "The name starts with a dot.",
    "nested_archive": "An archive inside an archive is not opened; extract it.",
}


class Found(NamedTuple):
    """An input with its first decompressed bytes, ready to be judged."""

    entry: Entry
    head: bytes


@dataclass(frozen=True, slots=True)
class Skip:
    """An input that is passed over, and why: a key of `SKIP_REASONS`.

    Attributes:
        lasting: The content is the reason, so that it holds as long as the file does not change.
    """

    path: str
    member: str | None
    reason: str
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Root:
    """An input that was named: a directory to walk, or files below a common folder."""

    folder: Path
    files: tuple[Path, ...] | None


def resolve_roots(inputs: Sequence[str], spool: Path) -> list[Root | StoredRoot]:
    """Reads what was named on the command line; a path that exists wins over its glob reading.

    Args:
        spool: Private folder that standard input and pipes are copied to, so that they can be read
            more than once like any other input.

    Raises:
        InputError: A name matches nothing.
        StoreError: The store behind a URI does not answer.
        UsageError: A URI is none of a store that is known.
    """
    roots: list[Root | StoredRoot] = []
    for name in inputs:
        if is_uri(name):
            roots.append(stored_root(name))
            continue
        path = Path(name)
        if name == STANDARD_INPUT:
            roots.append(_spooled("stdin", sys.stdin.buffer, spool))
        elif path.is_dir():
            roots.append(Root(path, None))
        elif path.is_fifo():
            with path.open("rb") as pipe:
                roots.append(_spooled(path.name, pipe, spool))
        elif os.path.lexists(name):
            roots.append(Root(path.parent, (path,)))
        else:
            matches = sorted(Path(match) for match in glob.glob(name, recursive=True))
            if not matches:
                raise InputError("no such file, directory or glob match", path=name)
            folder = Path(os.path.commonpath([match.parent for match in matches]))
            files = tuple(f for m in matches for f in ([m] if not m.is_dir() else _files(m)))
            roots.append(Root(folder, tuple(dict.fromkeys(files))))
    return roots


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if not path.is_dir()]


def _spooled(name: str, stream: IO[bytes], spool: Path) -> Root:
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / name).open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return Root(spool, (spool / name,))


def discover(
    root: Root | StoredRoot, *, lake: str, expansion: Expansion
) -> Iterator[tuple[Entry, str] | Skip]:
    """Regular files below a root in a stable order, each with its real path, and skips.

    The lake itself is not an input, wherever it lies.
    """
    if isinstance(root, StoredRoot):
        yield from _discover_stored(root, lake, expansion)
        return
    if root.files is not None:
        for file in root.files:
            relative = Path(os.path.relpath(file, root.folder)).as_posix()
            yield _judge(str(file), text_name(relative), os.path.realpath(file), expansion)
        return
    pending = [(str(root.folder), "")]
    while pending:
        folder, inside = pending.pop()
        try:
            with os.scandir(folder) as found:
                children = sorted(found, key=lambda child: child.name)
        except OSError:
            yield Skip(inside or ".", None, "unreadable")
            continue
        real = os.path.realpath(folder)
        below = []
        for child in children:
            own = text_name(child.name)
            name = f"{inside}/{own}" if inside else own
            where = f"{real}/{child.name}"
            if child.name.startswith("."):
                yield Skip(name, None, "hidden")
            elif child.is_dir(follow_symlinks=False):
                if where != lake:
                    below.append((child.path, name))
            else:
                target = os.path.realpath(where) if child.is_symlink() else where
                yield _judge(child.path, name, target, expansion)
        pending.extend(reversed(below))


def _discover_stored(
    root: StoredRoot, lake: str, expansion: Expansion
) -> Iterator[tuple[Entry, str] | Skip]:
    passed: set[str] = set()
    for file in root.files:
        hidden = hidden_part(file.name) if root.walked else None
        if hidden is not None:
            if hidden not in passed:
                passed.add(hidden)
                yield Skip(hidden, None, "hidden")
            continue
        uri = root.folder.below(file.name).uri
        if not uri.startswith(f"{lake}/"):
            limit = expansion.bytes_of(file.size)
            entry = Entry(
                *(file.name, None, uri, file.size, file.mtime_ns, 0), weight=file.size, limit=limit
            )
            yield entry, uri


def _judge(file: str, relative: str, real: str, expansion: Expansion) -> tuple[Entry, str] | Skip:
    try:
        status = os.stat(file)
    except OSError:
        return Skip(relative, None, "unreadable")
    if not stat.S_ISREG(status.st_mode):
        return Skip(relative, None, "not_a_file")
    size = status.st_size
    limit = expansion.bytes_of(size)
    state = (size, status.st_mtime_ns, status.st_ino)
    return Entry(relative, None, file, *state, weight=size, limit=limit), real


def open_heads(
    entry: Entry, opened: Callable[[], io.RawIOBase] | None = None
) -> Iterable[Found | Skip]:
    """First bytes of an input: one for a file, one per member for an archive.

    Args:
        opened: Gives the file, if it is being opened already.
    """
    if opened is None:  # a file of its own, and mostly one as it is: there may be many
        try:
            head = first_bytes(entry.location, HEAD_BYTES)
        except OSError as error:
            return (_unreadable(entry, error),)
        if not (is_zip(head) or is_tar(head) or codec_of(head)):
            return (_found_or_empty(entry, head),)
    return _heads_within(entry, opened)


def _heads_within(
    entry: Entry, opened: Callable[[], io.RawIOBase] | None
) -> Iterator[Found | Skip]:
    try:
        with opened() if opened else open_file(entry.location) as raw:
            head = raw.read(HEAD_BYTES)
            if is_zip(head):
                yield from _zip_heads(entry)
                return
            if codec_of(head) is not None:
                raw.seek(0)
                # Kept: it must not be finalised before `raw` closes.
                stream, _ = decompressed(raw, entry.limit)
                head = read_head(stream)
        if is_tar(head):
            yield from _tar_heads(entry)
        else:
            yield _found_or_empty(entry, head)
    except DECODE_ERRORS as error:
        yield _unreadable(entry, error)


def _unreadable(entry: Entry, error: Exception) -> Skip:
    if isinstance(error, ExpandedTooFarError):
        return Skip(entry.path, entry.member, "expands_too_far", lasting=False)
    refused = isinstance(error, OSError) and error.errno is not None
    return Skip(entry.path, entry.member, "unreadable", lasting=not refused)


def read_head(stream: IO[bytes]) -> bytes:
    """Up to `HEAD_BYTES` bytes; what can be decoded of a damaged stream, if anything."""
    pieces: list[bytes] = []
    size = 0
    try:
        while size < HEAD_BYTES and (piece := stream.read(min(8192, HEAD_BYTES - size))):
            pieces.append(piece)
            size += len(piece)
    except DECODE_ERRORS:
        if not pieces:
            raise
    return b"".join(pieces)


def _found_or_empty(entry: Entry, head: bytes) -> Found | Skip:
    return Found(entry, head) if head else Skip(entry.path, entry.member, "empty")


def _judge_member(entry: Entry, stream: IO[bytes]) -> Found | Skip:
    try:
        inner, _ = decompressed(stream, entry.limit)
        head = read_head(inner)
    except DECODE_ERRORS as error:
        return _unreadable(entry, error)
    if is_tar(head) or is_zip(head):
        return Skip(entry.path, entry.member, "nested_archive")
    return _found_or_empty(entry, head)


def _zip_heads(entry: Entry) -> Iterator[Found | Skip]:
    if zip_size(entry.location) > entry.limit:
        yield Skip(entry.path, None, "expands_too_far", lasting=False)
        return
    for position, info in enumerate(zip_members(entry.location)):
        if info.is_dir():
            continue
        member = entry._replace(member=info.filename, weight=info.file_size, position=position)
        try:
            with open_zip_member(member) as stream:
                yield _judge_member(member, stream)
        except DECODE_ERRORS as error:
            yield _unreadable(member, error)


def _tar_heads(entry: Entry) -> Iterator[Found | Skip]:
    try:
        for position, (info, stream) in enumerate(walk_tar(entry.location, entry.limit)):
            member = entry._replace(
                member=info.name, weight=info.size, position=position, packed=True
            )
            if info.isreg():
                yield _judge_member(member, stream)
            elif not info.isdir():
                yield Skip(entry.path, info.name, "not_a_file")
    except DECODE_ERRORS as error:
        yield _unreadable(entry, error)
