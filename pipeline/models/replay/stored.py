"""Keep arrays in a file until they are needed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


class Place(NamedTuple):
    """Say where arrays are in a file.

    Attributes:
        layout: Type and shape of each by its name, in their order in the file.
    """

    begin: int
    size: int
    layout: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


class ArrayFile:
    """Holds arrays in a file that is gone when it is closed."""

    def __init__(self, folder: Path | None) -> None:
        """Make an empty file.

        Args:
            folder: Where it is; None for a temporary folder.
        """
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - see close

    def write(self, arrays: Arrays) -> Place:
        """Add arrays to the file."""
        begin = self._file.tell()
        # The widest first, so that each is aligned where it is read.
        ordered = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
        for array in ordered.values():
            self._file.write(array.tobytes())
        self._file.flush()
        layout = {name: (array.dtype, array.shape) for name, array in ordered.items()}
        return Place(begin, self._file.tell() - begin, layout)

    def read(self, place: Place) -> dict[str, npt.NDArray[Any]]:
        """Return arrays that were written; threads may do so at once."""
        stored = bytearray(place.size)
        os.preadv(self._file.fileno(), [stored], place.begin)
        arrays: dict[str, npt.NDArray[Any]] = {}
        at = 0
        for name, (dtype, shape) in place.layout.items():
            count = math.prod(shape)
            arrays[name] = np.frombuffer(stored, dtype, count, at).reshape(shape)
            at += count * dtype.itemsize
        return arrays

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
