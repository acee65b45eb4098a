"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import UsageError


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A name beside a path, in the same folder; what is made there takes the path's place.

    Raises:
        UsageError: It cannot be written.
    """
    there = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield there
            os.replace(there, path)
        finally:
            there.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write: {error.strerror}", path=path, hint="choose another file"
        ) from error


def put(path: Path, content: bytes) -> None:
    """Puts a file in place; once this returns, it is on the disk.

    Raises:
        UsageError: It cannot be written.
    """
    with beside(path) as there, there.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
