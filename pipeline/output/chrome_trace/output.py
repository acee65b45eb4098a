"""Write a timeline to a file that appears when it is complete, or to a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, cast

from isal import igzip

from tracelake.base.errors import UsageError
from tracelake.base.files import output

_LEVEL = 2
_EVENTS_AT_ONCE = 2_000
_SUFFIXES = ("", ".json", ".gz")


@contextlib.contextmanager
def opened(out: Path | BinaryIO) -> Iterator[IO[bytes]]:
    """Yield a stream of bytes into `out`, compressed if its name ends in .gz.

    See `tracelake.base.files.output`.

    Raises:
        UsageError: It cannot be written, or its suffix is that of another format.
    """
    if not isinstance(out, Path):
        yield out
        out.flush()
        return
    if out.suffix not in _SUFFIXES:
        raise UsageError(
            f"a timeline cannot be written as {out.suffix}", hint="use .json or .json.gz"
        )
    with output(out) as file, _compressed(file) if out.suffix == ".gz" else file as stream:
        yield stream


def _compressed(file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Return a gzip stream without name and date, so equal timelines are equal files."""
    stream = igzip.IGzipFile(  # type: ignore[no-untyped-call]
        filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0
    )
    return cast(AbstractContextManager[IO[bytes]], stream)


class EventStream:
    """A JSON object with its events as the first member, written as they come."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._begun = False
        stream.write(b'{"traceEvents":[')

    def write(self, events: Iterable[str]) -> None:
        """Append events, each the text of a JSON object."""
        rest = iter(events)
        while some := list(islice(rest, _EVENTS_AT_ONCE)):
            lead = ",\n" if self._begun else "\n"
            self._begun = True
            self._stream.write((lead + ",\n".join(some)).encode())

    def close(self, members: str) -> None:
        """End the object with its other members.

        Args:
            members: Text of a JSON object that is not empty.
        """
        self._stream.write(f"\n],{members[1:]}\n".encode())
