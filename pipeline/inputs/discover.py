"""Find inputs: files, directories, globs, archives, standard input; record skipped ones."""

from __future__ import annotations

import glob
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tracelake.base.errors import InputError
from tracelake.inputs.ahead import read_ahead
from tracelake.inputs.expand import DecompressionLimit
from tracelake.inputs.stored_inputs import StoredRoot, hidden_part, stored_root
from tracelake.inputs.streams import FileRef, text_name
from tracelake.storage.store_path import MANIFESTS, is_uri

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Skip:
    """A skipped input with its reason: a key of `skip_reasons`.

    Attributes:
        lasting: The content is the reason, so it holds as long as the file does not change.
    """

    path: str
    member: str | None
    reason: str
    lasting: bool = True


Found = tuple[FileRef, str] | Skip
"""A file with its real path or URI, or a skipped input."""

_State = os.stat_result | OSError
"""Tells what the file system says of a file, or why it does not."""


@dataclass(frozen=True, slots=True)
class Root:
    """An input as given: a folder, or files below a common folder.

    Attributes:
        base: Real path or URI of the folder that names are relative to.
        covered: Locations of the folders and files that are looked at.
        found: What is there, in a stable order; found while it is taken.
    """

    base: str
    covered: tuple[str, ...]
    found: Iterator[Found]

    @property
    def stored(self) -> bool:
        """Return whether the input is in a store."""
        return is_uri(self.base)


class _Folder(NamedTuple):
    """A folder to be walked: its path, its name below the root, and its real path."""

    path: str
    inside: str
    real: str


def discover(
    inputs: Sequence[str], spool: Path, lake: str, expansion: DecompressionLimit
) -> list[Root]:
    """Read the inputs of the command line; an existing path takes precedence over a glob.

    Args:
        spool: Private folder that standard input and pipes are copied to, so that they can be read
            more than once like any other input.
        lake: Real path or URI of the lake, which is not an input, wherever it is. Each other lake
            is skipped as a whole.

    Raises:
        InputError: A name matches nothing.
        StoreError: The store behind a URI does not answer.
        UsageError: A URI has an unknown scheme.
    """
    return [_root(name, spool, lake, expansion) for name in inputs]


def location_of(base: str, path: str) -> str:
    """Return where a file lies, given its path below a root and the root's real path or URI."""
    return base if path == "." else f"{base.rstrip('/')}/{path}"


def _root(name: str, spool: Path, lake: str, expansion: DecompressionLimit) -> Root:
    if is_uri(name):
        stored = stored_root(name)
        base = stored.folder.uri
        names = [file.name for file in stored.files]
        covered = (base,) if stored.walked else tuple(location_of(base, name) for name in names)
        return Root(base, covered, _found_in_store(stored, lake, expansion))
    path = Path(name)
    _refuse_unusable(name)
    if name == STANDARD_INPUT:
        return _spooled("stdin", sys.stdin.buffer, spool, expansion)
    if path.is_dir():
        base = os.path.realpath(path)
        return Root(base, (base,), _found_below(path, lake, expansion))
    if path.is_fifo():
        with path.open("rb") as pipe:
            return _spooled(path.name, pipe, spool, expansion)
    if os.path.lexists(name):
        return _files_of(path.parent, (path,), expansion)
    matches = sorted(Path(match) for match in glob.glob(name, recursive=True))
    if not matches:
        raise _nothing(name)
    folder = Path(os.path.commonpath([match.parent for match in matches]))
    found = [f for m in matches for f in ([m, *sorted(m.rglob("*"))] if m.is_dir() else [m])]
    lakes = {file.parent for file in found if file.name == MANIFESTS and file.is_dir()}
    files = dict.fromkeys(
        file
        for file in found
        if lakes.isdisjoint(file.parents)
        and (os.path.realpath(file) != lake if file in lakes else not file.is_dir())
    )
    return _files_of(folder, tuple(files), expansion)


def _files_of(folder: Path, files: Sequence[Path], expansion: DecompressionLimit) -> Root:
    """Return the root of files that were named, below their common folder."""
    base = os.path.realpath(folder)
    names = [os.path.relpath(file, folder) for file in files]
    found = (
        _look_at(
            str(file),
            state,
            text_name(Path(name).as_posix()),
            os.path.realpath(file),
            expansion,
        )
        for (file, state), name in zip(read_ahead(files, _state), names, strict=True)
    )
    return Root(base, tuple(location_of(base, name) for name in names), found)


def refuse_missing(inputs: Sequence[str]) -> None:
    """Make sure that each input of this machine is there, before a lake is made for it.

    Raises:
        InputError: A name matches nothing.
    """
    for name in inputs:
        if name != STANDARD_INPUT and not is_uri(name):
            _refuse_unusable(name)
            if not (os.path.lexists(name) or any(glob.iglob(name, recursive=True))):
                raise _nothing(name)


def _nothing(name: str) -> InputError:
    hint = "check its spelling, and that its file system is mounted"
    return InputError("no such file, directory or glob match", path=name, hint=hint)


def _refuse_unusable(name: str) -> None:
    """Make sure that a name is one, and that the system looks it up."""
    if not name:
        raise InputError("an input has no name", hint="give a file, a directory or a glob")
    try:
        Path(os.path.realpath(name)).is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot be read: {reason}", path=name, hint="give another path"
        ) from error


def _spooled(name: str, stream: IO[bytes], spool: Path, expansion: DecompressionLimit) -> Root:
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / name).open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return _files_of(spool, (spool / name,), expansion)


def _found_below(root: Path, lake: str, expansion: DecompressionLimit) -> Iterator[Found]:
    pending = [read_ahead([_Folder(str(root), "", os.path.realpath(root))], _children)]
    links: list[tuple[str, str]] = []
    while pending:
        found = next(pending[-1], None)
        if found is None:
            pending.pop()
            continue
        (_, inside, real), children = found
        if children is None or any(c.name == MANIFESTS and c.is_dir() for c, _ in children):
            yield Skip(inside or ".", None, "unreadable" if children is None else "lake")
            continue
        below = []
        for child, state in children:
            own = text_name(child.name)
            name = f"{inside}/{own}" if inside else own
            where = f"{real.rstrip('/')}/{child.name}"  # links to folders are not followed
            if child.name.startswith("."):
                yield Skip(name, None, "hidden")
            elif child.is_dir(follow_symlinks=False):
                if where != lake:
                    below.append(_Folder(child.path, name, where))
            elif state is None:  # a link
                links.append((child.path, name))
            else:
                yield _look_at(child.path, state, name, where, expansion)
        pending.append(read_ahead(below, _children))
    # A file that is there by its own name has it, whatever links like `latest` lead to it.
    for path, name in links:
        yield _look_at(path, _state(path), name, os.path.realpath(path), expansion)


def _found_in_store(root: StoredRoot, lake: str, expansion: DecompressionLimit) -> Iterator[Found]:
    passed: set[Skip] = set()
    folders = (file.name.partition(f"{MANIFESTS}/") for file in root.files)
    lakes = {folder for folder, mark, _ in folders if mark and folder[-1:] in ("", "/")}
    for file in root.files:
        uri = root.folder.below(file.name).uri
        if uri.startswith(f"{lake}/"):
            continue
        if skip := _skip_in_store(file.name, lakes, walked=root.walked):
            if skip not in passed:
                passed.add(skip)
                yield skip
            continue
        limit = expansion.bytes_of(file.size)
        entry = FileRef(
            *(file.name, None, uri, file.size, file.mtime_ns, 0), weight=file.size, limit=limit
        )
        yield entry, uri


def _skip_in_store(name: str, lakes: Collection[str], *, walked: bool) -> Skip | None:
    for folder in lakes:
        if name.startswith(folder):
            return Skip(folder.rstrip("/") or ".", None, "lake")
    hidden = hidden_part(name) if walked else None
    return None if hidden is None else Skip(hidden, None, "hidden")


def _children(folder: _Folder) -> list[tuple[os.DirEntry[str], _State | None]] | None:
    """Return what is in a folder, by name, its files with their state; None if it is unreadable."""
    try:
        with os.scandir(folder.path) as found:
            children = sorted(found, key=lambda child: child.name)
    except OSError:
        return None
    return [*read_ahead(children, _state_of)]


def _state_of(child: os.DirEntry[str]) -> _State | None:
    """Return the state of a file; None for a folder and for a link."""
    return None if child.is_symlink() or child.is_dir() else _state(child.path)


def _state(file: str | Path) -> _State:
    """Return the state of a file, behind its links."""
    try:
        return os.stat(file)
    except OSError as error:
        return error


def _look_at(
    file: str, state: _State, relative: str, real: str, expansion: DecompressionLimit
) -> Found:
    if isinstance(state, OSError):
        gone = isinstance(state, FileNotFoundError) and os.path.islink(file)
        return Skip(relative, None, "dangling_link" if gone else "unreadable")
    if not stat.S_ISREG(state.st_mode):
        return Skip(
            relative, None, "lake" if os.path.isdir(f"{file}/{MANIFESTS}") else "not_a_file"
        )
    size = state.st_size
    limit = expansion.bytes_of(size)
    known = (size, state.st_mtime_ns, state.st_ino)
    return FileRef(relative, None, file, *known, weight=size, limit=limit), real
