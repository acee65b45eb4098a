"""Keep arrays in a file until they are needed."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

Place = slice
"""The bytes of a file that were written at once."""


class ArrayFile:
    """Holds arrays, and objects of arrays, in a file that is gone when it is closed."""

    def __init__(self, folder: Path | None) -> None:
        """Make an empty file.

        Args:
            folder: Where it is; None for a temporary folder.
        """
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - see close

    def write(self, fields: Mapping[str, Any]) -> Place:
        """Add fields to the file; an array that several of them have is stored once."""
        begin = self._file.tell()
        pickle.dump(fields, self._file, protocol=5)
        self._file.flush()
        return slice(begin, self._file.tell())

    def read(self, place: Place) -> dict[str, Any]:
        """Return fields that were written; threads may do so at once."""
        with (
            mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as whole,
            memoryview(whole)[place] as stored,
        ):
            fields: dict[str, Any] = pickle.loads(stored)
        return fields

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
