"""Handle sources that cannot be read to their end: report the error, salvage the rest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import IO

from tracelake.formats.ledger import (
    EXPANDED_TOO_FAR,
    READ_ERROR,
    TRUNCATED_COMPRESSION,
    Fault,
    Ledger,
)
from tracelake.inputs.expand import ExpandedTooFarError
from tracelake.inputs.sources import Source
from tracelake.inputs.streams import DECODE_ERRORS

_PIECE = 1 << 16


def damage_note(source: Source, error: Exception) -> Callable[[Ledger], None]:
    """Return the ledger's entry for an error."""
    system = isinstance(error, OSError) and error.errno is not None
    fault: Fault = READ_ERROR if system else TRUNCATED_COMPRESSION
    if isinstance(error, ExpandedTooFarError):
        fault = EXPANDED_TOO_FAR
    raw = str(error).encode()
    return lambda told: told.fault(source.source_id, fault, raw=raw)


def salvaged(source: Source, skip: int, most: int) -> IO[bytes]:
    """Return what a damaged stream still gives after its first `skip` bytes, byte by byte."""
    saved = bytearray()
    with contextlib.suppress(*DECODE_ERRORS):
        opened = source.reopen()
        if opened is not None:
            with opened as (again, _):
                # The same error comes again, this time at the exact byte.
                while skip and (piece := again.read(min(skip, _PIECE))):
                    skip -= len(piece)
                # The file may have been replaced by one that does not fail.
                while len(saved) < most and (byte := again.read(1)):
                    saved += byte
    return io.BytesIO(saved)
