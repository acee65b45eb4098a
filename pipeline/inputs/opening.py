"""Open an input as a stream of decompressed bytes: a file or an archive member."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO

from tracelake.inputs.archives import open_zip_member, pass_by
from tracelake.inputs.streams import Codec, FileRef, decompressed, open_file

Opened = AbstractContextManager[tuple[IO[bytes], Codec | None]]
"""Decompressed bytes of an input and its compression."""


def open_entry(entry: FileRef, *, patient: bool = False) -> Opened:
    """Open an input.

    A member of a tar is found by reading the tar up to it; use `pass_by` for many.

    Args:
        patient: The stream is damaged: see `Codec.patient`.
    """
    if entry.member is not None:
        return _open_member(entry, patient=patient)
    raw = open_file(entry.location)
    try:
        return _Plain(raw, *decompressed(raw, entry.limit, patient=patient))
    except BaseException:
        raw.close()
        raise


class _Plain(AbstractContextManager[tuple[IO[bytes], Codec | None]]):
    """A plain file. A class is faster than a generator; there may be 100,000 files."""

    __slots__ = ("_opened", "_raw")

    def __init__(self, raw: io.RawIOBase, stream: IO[bytes], codec: Codec | None) -> None:
        self._raw = raw
        self._opened = stream, codec

    def __enter__(self) -> tuple[IO[bytes], Codec | None]:
        return self._opened

    def __exit__(self, *error: object) -> None:
        self._raw.close()


@contextlib.contextmanager
def _open_member(entry: FileRef, *, patient: bool) -> Iterator[tuple[IO[bytes], Codec | None]]:
    with contextlib.ExitStack() as stack:
        if entry.packed:
            members = stack.enter_context(contextlib.closing(pass_by([entry])))
            _, raw = next(members)
        else:
            raw = stack.enter_context(open_zip_member(entry))
        yield decompressed(raw, entry.limit, patient=patient)
