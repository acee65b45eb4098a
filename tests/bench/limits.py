"""What no candidate can pass: reading the bytes, hashing them, decompressing them, counting lines.

    python -m tests.bench.limits NAME PATH

prints a number or a digest that the bench checks.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_BUFFER_BYTES = 1 << 20


def _count(file: Any) -> str:
    buffer, total = bytearray(_BUFFER_BYTES), 0
    while got := file.readinto(buffer):
        total += got
    return str(total)


def _read(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return _count(file)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _zlib(path: Path) -> str:
    with gzip.open(path) as file:
        return _count(file)


def _isal(path: Path) -> str:
    from isal import igzip

    opened: Any = igzip.open
    with opened(path) as file:
        return _count(file)


def _pyarrow(path: Path) -> str:
    import pyarrow as pa

    with pa.input_stream(str(path), buffer_size=_BUFFER_BYTES) as file:
        return _count(file)


LIMITS: dict[str, Callable[[Path], str]] = {
    "read": _read,
    "sha256": _sha256,
    "zlib": _zlib,
    "isal": _isal,
    "pyarrow": _pyarrow,
}

# Programs that print their answer; where one is not installed, it is not measured.
_PROGRAMS = {"wc -l": ("wc", "-l")}


def programs() -> dict[str, tuple[str, ...]]:
    """Command lines to put a path behind, of programs that are there."""
    return {name: line for name, line in _PROGRAMS.items() if shutil.which(line[0])}


if __name__ == "__main__":
    sys.stdout.write(LIMITS[sys.argv[1]](Path(sys.argv[2])))
