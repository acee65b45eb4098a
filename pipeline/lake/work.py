"""Lock a lake, and give private folders for work in progress."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from tracelake.base.files import make_folder, naming, remove_tree, replace

STAGING = "_staging"
LOCKS = "_lock"
MARK = ".writer"
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextlib.contextmanager
def locked(root: Path, name: str) -> Iterator[None]:
    """Hold an exclusive lock of a lake; wait for it."""
    path = root / LOCKS / name
    make_folder(path.parent)
    with open_lock(path, "ab") as held:
        with naming(path):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def open_lock(path: Path, mode: str) -> IO[bytes]:
    """Open a file to lock it; a user who may only read the lake can lock, too.

    Args:
        mode: How to open it otherwise: some file systems lock only what is open for writing.
    """
    try:
        return cast(IO[bytes], path.open(mode))
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.exists():
            raise
        return path.open("rb")


@contextlib.contextmanager
def staging(root: Path, purpose: str) -> Iterator[Path]:
    """Yield a private folder on the lake's file system, removed afterwards."""
    parent = root / STAGING
    make_folder(parent)
    with locked(root, "staging"):  # other processes do not see it before its writer is recorded
        folder = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=parent))
        alive = _claim(folder)
    with alive, naming(folder):
        try:
            yield folder
        finally:
            remove_staging(folder)


def _claim(folder: Path) -> BinaryIO:
    try:
        alive = (folder / MARK).open("wb")
        fcntl.flock(alive, fcntl.LOCK_EX)
    except BaseException:
        remove_tree(folder)
        raise
    return alive


def remove_dead(root: Path) -> int:
    """Remove staging folders of dead writers, and return the number of files."""
    with locked(root, "staging"):
        dead = [folder for folder in (root / STAGING).glob("*") if not is_held(folder / MARK)]
        files = sum(not path.is_dir() for folder in dead for path in folder.rglob("*"))
        for folder in dead:
            remove_staging(folder)
    return files


def is_held(path: Path) -> bool:
    """Return whether a live process has a lock on the file."""
    try:
        with open_lock(path, "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def remove_staging(folder: Path) -> None:
    """Remove a folder to which workers may still write; they then no longer find it."""
    gone = folder.with_name(f"{folder.name}.gone")
    try:
        _move_and_remove(folder, gone)
    except BaseException:  # after a signal, remove it without being disturbed by another
        _move_and_remove(folder, gone)
        raise


def _move_and_remove(folder: Path, gone: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        replace(folder, gone)
    if gone.exists():
        remove_tree(gone)
