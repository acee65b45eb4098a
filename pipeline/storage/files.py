"""Access files of a store through pyarrow: list, open as binary files, put and remove."""

from __future__ import annotations

import importlib
import io
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
from pyarrow import fs

from tracelake.storage.store_path import StorePath, store_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from _typeshed import WriteableBuffer

# Parallel requests to a store: each mostly waits for the network.
WIDTH = 32
_COPY_BYTES = 8 << 20
# Seconds before a read is tried again.
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, None)
# Sizes of read-ahead; the first piece may be enough, e.g. for a head.
FIRST_BYTES = 64 << 10
_LARGEST_BYTES = 8 << 20
# Files up to this size are read whole: a request costs as much.
_WHOLE_BYTES = 1 << 20


class Listed(NamedTuple):
    """A file below a folder.

    Attributes:
        name: Relative to the folder, posix.
        mtime_ns: Since 1970.
    """

    name: str
    size: int
    mtime_ns: int


class StoredFile(io.RawIOBase):
    """A file of a store that can be read from any position.

    Read-ahead grows from piece to piece, because a request costs as much as a megabyte.

    Raises:
        FileNotFoundError: It does not exist.
        StoreError: See `store_errors`.
    """

    def __init__(self, place: StorePath) -> None:
        super().__init__()
        self._place = place
        with store_errors(place.uri):
            opened: pa.NativeFile = place.filesystem.open_input_file(place.path)
            self.size: int = opened.size()
        self._file = opened
        self._at = 0
        self._piece = b""
        self._piece_at = 0
        self._ahead = FIRST_BYTES

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position in the file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer as far as bytes remain.

        Raises:
            StoreError: See `store_errors`.
        """
        view = memoryview(buffer).cast("B")
        inside = self._at - self._piece_at
        if not 0 <= inside < len(self._piece):
            self._piece = self.range(self._at, max(self._ahead, view.nbytes))
            self._ahead = min(4 * self._ahead, _LARGEST_BYTES)
            self._piece_at, inside = self._at, 0
        count = min(view.nbytes, len(self._piece) - inside)
        view[:count] = self._piece[inside : inside + count]
        self._at += count
        return count

    def range(self, start: int, count: int) -> bytes:
        """Return bytes from a position, fewer at the end of the file, in one request.

        Raises:
            StoreError: See `store_errors`.
        """
        wanted = min(count, self.size - start)
        if wanted <= 0:
            return b""
        for pause in _PAUSES:
            with store_errors(self._place.uri):
                try:
                    data: bytes = self._file.read_at(wanted, start)
                except OSError as error:
                    # The error text of a busy store does not fit where pyarrow expects the data of
                    # a small read; it takes that for the end of all, not for a reason to ask again.
                    if pause is None or "INTERNAL_FAILURE" not in str(error):
                        raise
                    time.sleep(pause)
                    continue
            return data
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self._piece = b""
            self._file.close()
        super().close()


def whole(place: StorePath, size: int, mtime_ns: int) -> bytes | None:
    """Return the content of a small file in one request, without asking for its size first.

    pyarrow always asks. So this needs the extra `stores`, and a store that it supports.

    Args:
        size: As listed.
        mtime_ns: As listed.

    Returns:
        None if the file is large, has changed since, or cannot be read so; `StoredFile` tells why.
    """
    if size > _WHOLE_BYTES or not place.is_conditional:
        return None
    if size == 0:
        return b""
    try:
        objects = importlib.import_module("tracelake.storage.objects")
    except ModuleNotFoundError:
        return None
    return cast(bytes | None, objects.whole_objects(place.root).read(place, size, mtime_ns))


def look(folder: StorePath, names: Collection[str]) -> dict[str, int]:
    """Return bytes of those files of a folder that exist; names are relative to it."""
    paths = {folder.below(name).path: name for name in names}
    with store_errors(folder.uri):
        found = folder.filesystem.get_file_info(list(paths))
    return {paths[i.path]: i.size for i in found if i.type == fs.FileType.File}


def stat(place: StorePath) -> Listed | None:
    """Return a file's entry in the store; None if it does not exist."""
    with store_errors(place.uri):
        info = place.filesystem.get_file_info(place.path)
    return None if info.type != fs.FileType.File else _listed(info, place.name)


def listed(place: StorePath) -> list[Listed]:
    """Return all files below a folder, in order of name; none if there is no such folder."""
    selector = fs.FileSelector(place.path, allow_not_found=True, recursive=True)
    with store_errors(place.uri):
        found = place.filesystem.get_file_info(selector)
    start = len(place.path) + 1
    return sorted(_listed(i, i.path[start:]) for i in found if i.type == fs.FileType.File)


def _listed(info: fs.FileInfo, name: str) -> Listed:
    return Listed(name, info.size, info.mtime_ns or 0)


def upload(folder: StorePath, files: Mapping[str, Path]) -> None:
    """Put files into a folder of a store in parallel.

    Args:
        files: Name, relative to the folder -> file on this machine.

    Raises:
        StoreError: See `store_errors`; some files may have been put by then.
    """
    with ThreadPoolExecutor(WIDTH) as pool:
        for done in [pool.submit(_upload, folder.below(name), files[name]) for name in files]:
            done.result()


def _upload(place: StorePath, file: Path) -> None:
    with (
        file.open("rb") as source,
        store_errors(place.uri),
        place.filesystem.open_output_stream(place.path, compression=None) as target,
    ):
        while piece := source.read(_COPY_BYTES):
            target.write(piece)


def remove_all(folder: StorePath, names: Collection[str]) -> None:
    """Remove files of a folder in parallel; they need not exist."""
    with ThreadPoolExecutor(WIDTH) as pool:
        for done in [pool.submit(_remove, folder.below(name)) for name in names]:
            done.result()


def _remove(place: StorePath) -> None:
    try:
        with store_errors(place.uri):
            place.filesystem.delete_file(place.path)
    except FileNotFoundError:
        pass
