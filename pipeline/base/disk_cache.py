"""Cache results on disk between processes: anything that a process could compute again.

Any failure only costs the computation: no home folder, a folder that cannot be written, a full
disk, a folder that disappears, a damaged file, two processes that write at once. Compiled code is
among the results. So results are read only from folders and files that belong to this user or to
root and that no one else can write.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

_DAY = 86_400
_UNUSED_DAYS = 30
_DIGEST = hashlib.sha256
# A link or a pipe is not a result.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK
_VERSION = "[0-9a-f]" * 16


def places() -> list[Path]:
    """Return the folders where results may be stored, in order of preference.

    They are `NUMBA_CACHE_DIR` if set, else beside the code and then the user's cache folder, below
    `XDG_CACHE_HOME` or `~/.cache`.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    parents = [Path(__file__).resolve().parent.parent / "__pycache__"]
    with contextlib.suppress(RuntimeError):
        parents.append(user_cache())
    return parents


def user_cache() -> Path:
    """Return the user's cache folder: below `XDG_CACHE_HOME` if that is absolute, else `~/.cache`.

    Raises:
        RuntimeError: There is neither HOME nor an entry in the user database.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "tracelake"


def cache_of(kind: str, *depends_on: str) -> DiskCache:
    """Return the cache of results of a kind that depend on these texts; see `DiskCache`."""
    return DiskCache(kind, _DIGEST("\0".join(depends_on).encode()).hexdigest()[:16], places())


class DiskCache:
    """A cache of results by name, in a folder whose name is a hash of everything they depend on.

    Results are read from every folder that has them, so a read-only installation can include some.
    They are written to the first folder that can be written. Folders of other versions are removed
    when none of their results was read for 30 days.

    Args:
        kind: What the results are; with the version the name of their folder.
        version: 16 hex digits, the hash of what the results depend on.
        parents: Where that folder may be, the preferred place first.

    Attributes:
        trouble: Why the last result could not be written; None if all could.
    """

    def __init__(self, kind: str, version: str, parents: Sequence[Path]) -> None:
        self._kind = kind
        self._folders = tuple(parent / f"{kind}-{version}" for parent in parents)
        self.trouble: str | None = None
        self._fresh: set[Path] = set()

    def read(self, name: str) -> bytes | None:
        """Return the result of that name; None if it is missing or damaged."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                content = _content(folder, name)
                digest, result = content[:32], content[32:]
                if _DIGEST(result).digest() == digest:
                    self._stamp(folder)
                    return result
        return None

    def made(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the result of that name; make and store it if there is none."""
        result = self.read(name)
        if result is None:
            result = make()
            self.write(name, result)
        return result

    def write(self, name: str, result: bytes) -> None:
        """Store a result if possible; `trouble` says why not."""
        troubles = []
        for folder in self._folders:
            try:
                _replace(folder / name, _DIGEST(result).digest() + result)
            except OSError as error:
                troubles.append(f"{folder.parent}: {error.strerror}")
                continue
            self._stamp(folder)
            return
        self.trouble = "; ".join(troubles) or "there is no home directory"

    def _stamp(self, folder: Path) -> None:
        """Mark a folder as used, and remove unused ones beside it; once each."""
        if folder in self._fresh:
            return
        self._fresh.add(folder)
        with contextlib.suppress(OSError):
            os.utime(folder)
            unused = time.time() - _UNUSED_DAYS * _DAY
            for other in folder.parent.glob(f"{self._kind}-{_VERSION}"):
                if other != folder and other.stat().st_mtime < unused:
                    shutil.rmtree(other, ignore_errors=True)


def _content(folder: Path, name: str) -> bytes:
    """Return the content of a file, after a check of the folder and the file that are read."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _refuse_foreign(os.fstat(inside))
        with open(
            name, "rb", opener=lambda path, flags: os.open(path, flags | _PLAIN, dir_fd=inside)
        ) as file:
            _refuse_foreign(os.fstat(file.fileno()))
            return file.read()
    finally:
        os.close(inside)


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically, so that no one else can change it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _refuse_foreign(path.parent.stat())
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        new = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o644)
        with open(new, "wb") as file:
            file.write(content)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _refuse_foreign(found: os.stat_result) -> None:
    """Raise PermissionError if others than this user and root could have written it."""
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others can write there")
