"""Find inputs: files, directories, globs, archives, standard input; record skipped ones."""

from __future__ import annotations

import glob
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tracelake.base.errors import InputError
from tracelake.inputs.expand import DecompressionLimit
from tracelake.inputs.names import text_name
from tracelake.inputs.stored_inputs import StoredRoot, hidden_part, stored_root
from tracelake.inputs.streams import (
    FileRef,
)
from tracelake.storage import is_uri

STANDARD_INPUT = "-"

# Why an input is skipped: the closed list of `skipped.reason`.
SKIP_REASONS = {
    "empty": "The file has no bytes.",
    "no_format": "No format recognises the content; see `tracelake formats`.",
    "no_records": "The format that was forced or chosen found no record in it.",
    "ambiguous": "Several formats claim the content; choose one with --input-format.",
    "unreadable": "The operating system or the decompressor cannot read it.",
    "expands_too_far": "It, or the archive with it, decompresses to more than --max-expand allows.",
    "not_a_file": "A device, socket, pipe or link to a directory; only regular files are read.",
    "hidden": "The name starts with a dot.",
    "nested_archive": "An archive inside an archive is not opened; extract it.",
}


@dataclass(frozen=True, slots=True)
class Skip:
    """A skipped input with its reason: a key of `SKIP_REASONS`.

    Attributes:
        lasting: The content is the reason, so it holds as long as the file does not change.
    """

    path: str
    member: str | None
    reason: str
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Root:
    """An input as given: a directory to walk, or files below a common folder."""

    folder: Path
    files: tuple[Path, ...] | None


def resolve_roots(inputs: Sequence[str], spool: Path) -> list[Root | StoredRoot]:
    """Read the inputs of the command line; an existing path takes precedence over a glob.

    Args:
        spool: Private folder that standard input and pipes are copied to, so that they can be read
            more than once like any other input.

    Raises:
        InputError: A name matches nothing.
        StoreError: The store behind a URI does not answer.
        UsageError: A URI has an unknown scheme.
    """
    roots: list[Root | StoredRoot] = []
    for name in inputs:
        if is_uri(name):
            roots.append(stored_root(name))
            continue
        path = Path(name)
        _refuse_unusable(name)
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


def _refuse_unusable(name: str) -> None:
    """Make sure that a name is one, and that the system looks it up."""
    if not name:
        raise InputError("an input has no name", hint="give a file, a directory or a glob")
    try:
        Path(os.path.realpath(name)).is_dir()
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot be read: {told}", path=name, hint="give another path") from error


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if not path.is_dir()]


def _spooled(name: str, stream: IO[bytes], spool: Path) -> Root:
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / name).open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return Root(spool, (spool / name,))


def discover(
    root: Root | StoredRoot, *, lake: str, expansion: DecompressionLimit
) -> Iterator[tuple[FileRef, str] | Skip]:
    """Yield regular files below a root in a stable order, each with its real path, and skips.

    The lake itself is not an input, wherever it is.
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
    root: StoredRoot, lake: str, expansion: DecompressionLimit
) -> Iterator[tuple[FileRef, str] | Skip]:
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
            entry = FileRef(
                *(file.name, None, uri, file.size, file.mtime_ns, 0), weight=file.size, limit=limit
            )
            yield entry, uri


def _judge(
    file: str, relative: str, real: str, expansion: DecompressionLimit
) -> tuple[FileRef, str] | Skip:
    try:
        status = os.stat(file)
    except OSError:
        return Skip(relative, None, "unreadable")
    if not stat.S_ISREG(status.st_mode):
        return Skip(relative, None, "not_a_file")
    size = status.st_size
    limit = expansion.bytes_of(size)
    state = (size, status.st_mtime_ns, status.st_ino)
    return FileRef(relative, None, file, *state, weight=size, limit=limit), real
