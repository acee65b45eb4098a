"""Perform every change of a stored file: one function per change, and atomic files.

Every file of a lake is written, moved and removed through this module, but for the warehouse, which
DuckDB writes beside its place. So a test can stop the process, or let the system refuse, between
any two changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tracelake.base.errors import RefusedError, UsageError, advice_on, is_refusal

STDOUT = Path("-")
"""Stands for standard output where an option takes a file."""
_MARK = "tracelake"
# The form that the beginning of a URI has in a path.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/")
# With so many files or more, one call for the whole file system is faster than one per file.
_MANY = 8
_LINUX = sys.platform == "linux"
# Letters of a file's name in its temporary name, which a file system limits to 255 bytes.
_NAMED = 48

# --- changes ------------------------------------------------------------------------------------


class NewFile:
    """A file that is being written from its first byte; errors name it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")

    def write(self, data: Any) -> int:
        """Append bytes, all of them."""
        with naming(self.path):
            return self._file.write(data)

    def close(self) -> None:
        """Close the file; it need not be on the disk yet."""
        with naming(self.path):
            self._file.close()


def write(path: Path, content: bytes) -> None:
    """Write a file from its first byte."""
    with contextlib.closing(NewFile(path)) as file:
        file.write(content)


def append(path: Path, content: bytes) -> None:
    """Write at the end of a file."""
    with naming(path), path.open("ab", buffering=0) as file:
        file.write(content)


def replace(source: Path, target: Path) -> None:
    """Put a file in the place of another atomically: readers see one or the other."""
    os.replace(source, target)


def link(target: str, path: Path) -> None:
    """Make a symbolic link."""
    path.symlink_to(target)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they do not exist."""
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError:
        for folder in (*reversed(path.parents), path):
            folder.mkdir(exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        path.rmdir()


def remove_tree(path: Path) -> None:
    """Remove a folder with its contents; others may do so at the same time."""
    shutil.rmtree(path, onerror=_unless_missing)


def sync(paths: Collection[Path]) -> None:
    """Write files and folders to the disk, so that they survive a power cut.

    For many files one call syncs the whole file system of the first, if the system has that call:
    all must be on that file system.
    """
    together = _syncfs() if len(paths) >= _MANY else None
    for path in list(paths)[: 1 if together else None]:
        with naming(path):
            opened = os.open(path, os.O_RDONLY)
            try:
                (together or os.fsync)(opened)
            finally:
                os.close(opened)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to errors of the system that only know an open file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _unless_missing(_: object, __: str, failed: tuple[type, BaseException, object]) -> None:
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]


@functools.cache
def _syncfs() -> Callable[[int], None] | None:
    """Return the system call that syncs a file system; Python does not have it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if _LINUX else None
    if call is None:
        return None

    def together(opened: int) -> None:
        if call(opened):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return together


# --- atomic files -------------------------------------------------------------------------------


def refuse_uri(path: str) -> None:
    """Make sure that a file is not in a store, before work for it is done.

    Raises:
        UsageError: It is to be in a store.
    """
    if _SCHEME.match(path):
        raise UsageError(
            "this file cannot be written to a URI",
            path=re.sub(":/+", "://", path, count=1),  # of which a Path has one slash
            hint="write it here, then copy it there",
        )


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; on exit the file made there replaces the path.

    Once the context is left, the file is on the disk. What a process that was killed has left in
    the folder is removed.

    Raises:
        RefusedError: The disk is full or broken.
        UsageError: It cannot be written.
    """
    refuse_uri(str(path))
    try:
        make_folder(path.parent)
        _remove_dead(path.parent)
        name = f".{path.name[:_NAMED]}.{_MARK}.{os.getpid()}.tmp"
        with _claimed(path.with_name(name)) as there:
            yield there
            sync([there])
            replace(there, path)
            sync([path.parent])
    except OSError as error:
        raise _refusal(error, path) from error


def put(path: Path, content: bytes) -> None:
    """Put a file in place; once this returns, it is on the disk.

    Raises:
        RefusedError: The disk is full or broken.
        UsageError: It cannot be written.
    """
    with beside(path) as there:
        write(there, content)


def put_link(path: Path, target: str) -> None:
    """Make a link to a target, relative to its folder, in place of the old link.

    Raises:
        OSError: The file system has no links, or refuses.
    """
    make_folder(path.parent)
    there = path.with_name(f".{path.name}.{_MARK}.link")
    try:
        remove(there)
        link(target, there)
        replace(there, path)
    finally:
        remove(there)


@contextmanager
def _claimed(there: Path) -> Iterator[Path]:
    """Yield a file that is locked while it is written: the lock shows that its writer is alive."""
    try:
        while True:
            with open(there, "ab", opener=_no_link) as held:
                _lock(held.fileno(), wait=True)
                if _leads_to(there, held.fileno()):  # not removed before it was locked
                    yield there
                    return
    finally:
        remove(there)


def _no_link(path: str, flags: int) -> int:
    """Open a file whose name others may guess; a symbolic link is an error."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _remove_dead(folder: Path) -> None:
    for other in folder.glob(f".*.{_MARK}.*.tmp"):
        with contextlib.suppress(OSError), other.open("r+b") as held:
            if _lock(held.fileno(), wait=False) and _leads_to(other, held.fileno()):
                remove(other)


def _lock(opened: int, *, wait: bool) -> bool:
    """Return whether the file is locked for this process; some file systems have no locks."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _leads_to(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(opened))
    except FileNotFoundError:
        return False


def _refusal(error: OSError, path: Path) -> RefusedError | UsageError:
    if is_refusal(error) and error.errno != errno.EROFS:
        return RefusedError(
            f"cannot write: {error.strerror}",
            path=path,
            hint=advice_on(error),
        )
    return UsageError(f"cannot write: {error.strerror}", path=path, hint="choose another file")


# --- files that a user names --------------------------------------------------------------------


def read_text(path: Path, what: str, most: int, encoding: str = "utf-8") -> str:
    """Return the text of a file that a user named.

    Args:
        what: What the file is, for errors.
        most: Bytes that it may have; a device may have no end.

    Raises:
        UsageError: It cannot be read, is too long, or is not text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) <= most:
            return content.decode(encoding)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        hint = "give a text file that this user can read"
        raise UsageError(f"cannot read {what}: {why}", path=path, hint=hint) from error
    raise UsageError(
        f"{what} is too long", path=path, hint=f"give a file of at most {most / 1e6:.0f} MB"
    )


@contextmanager
def output(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream into a file that a user named.

    A new or regular file is replaced when the context exits without an error; otherwise it stays as
    it was. A link stays: the file it points at is replaced. A device or a pipe is written through.

    Raises:
        RefusedError: The disk is full or broken.
        UsageError: It cannot be written.
    """
    try:
        target = replaceable(path)
        if target is None:
            with open(path, "wb", opener=_existing) as stream, naming(path):
                yield stream
            return
        with beside(target) as there, there.open("wb") as stream:
            if target.exists():
                shutil.copymode(target, there)
            yield stream
    except OSError as error:
        raise _refusal(error, path) from error


def put_output(path: Path, content: bytes) -> None:
    """Write the whole content of a file that a user named; see `output`."""
    with output(path) as stream:
        stream.write(content)


def refuse_outputs(outputs: Mapping[str, Path | None], lake: Path, page: Path) -> None:
    """Make sure that files that a user named can be outputs, before work for them is done.

    Args:
        outputs: Files by the option that names them; None and `-` are no files.
        lake: Folder of the lake, in which a command may only write `page`.

    Raises:
        UsageError: A file is a directory, in a store or in the lake, or two are the same.
    """
    known: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None or path == STDOUT:
            continue
        refuse_uri(str(path))
        real = _real(path)
        if os.path.isdir(real):
            raise UsageError(
                f"{option} names a directory, not a file", path=path, hint="give a file"
            )
        if real != _real(page) and _is_in(real, _real(lake)):
            raise UsageError(
                f"{option} names a file in the lake", path=path, hint="give a file elsewhere"
            )
        if real in known and not _is_special(path):
            raise UsageError(
                f"{option} and {known[real]} name the same file", path=path, hint="give two files"
            )
        replaceable(path)  # a name that cannot be one is refused here, too
        known[real] = option


def _real(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except OSError as error:  # the working folder has been removed
        raise UsageError(
            f"a relative path cannot be used: {error.strerror}",
            path=path,
            hint="change to a folder that exists, or give an absolute path",
        ) from error


def _is_in(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _is_special(path: Path) -> bool:
    """Return whether this is a device, a pipe or a socket."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def replaceable(path: Path) -> Path | None:
    """Return the file that an output replaces, behind links; None for one to write through.

    A link of /proc is an open file of a process, such as /dev/stdout: another file in its place
    would not be what that process has open.

    Raises:
        UsageError: The name cannot be that of a file, such as a link that leads to itself.
    """
    target = path
    try:
        if _is_special(path):
            return None
        while target.is_symlink():
            folder = os.path.realpath(target.parent)
            if _is_in(folder, "/proc"):
                return None
            target = Path(folder, os.readlink(target))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise _refusal(error, path) from error
    return target


def _existing(path: str, flags: int) -> int:
    """Open a file that exists; if it has gone, no other is made."""
    return os.open(path, flags & ~os.O_CREAT)
