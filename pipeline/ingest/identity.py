"""Derive names from content alone: run ids, groups, hashes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from typing import IO

from tracelake.ingest.sniff import InputFile
from tracelake.inputs.archives import pass_by
from tracelake.inputs.sources import open_entry
from tracelake.inputs.streams import DECODE_ERRORS, FileRef, decompressed

RunOrder = tuple[int, bool, tuple[bool, int, str]]

_ID_LENGTH = 120
_HASH_DIGITS = 8
# What people call a copy: `Copy of job`, `job (1)`, `job.bak`, `old`.
_COPIED = re.compile(r"(?<![a-z])(copy|backup|bak|old)(?![a-z])| \(\d+\)", re.IGNORECASE)


def slug(text: str) -> str:
    """Return text as a file name: lower case, `[a-z0-9._-]`, never empty, never hidden."""
    cleaned = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")
    return cleaned[: _ID_LENGTH - _HASH_DIGITS - 1].strip("-.") or "run"


def content_hash(entry: FileRef, limit: int | None = None) -> str | None:
    """Return SHA-256 of the decompressed bytes, or the first `limit`; None if unreadable."""
    with contextlib.suppress(*DECODE_ERRORS), open_entry(entry) as (stream, _):
        return _hash(stream, limit)
    return None


def packed_hashes(entries: Sequence[FileRef]) -> dict[int, str | None]:
    """Return `content_hash` of each of these members of one tar, by position, in one pass."""
    limits = {entry.position: entry.limit for entry in entries}
    hashes: dict[int, str | None] = {}
    for position, packed in pass_by(entries):
        hashes[position] = None
        with contextlib.suppress(*DECODE_ERRORS):
            stream, _ = decompressed(packed, limits[position])
            hashes[position] = _hash(stream, None)
    return hashes


def _hash(stream: IO[bytes], limit: int | None) -> str | None:
    digest = hashlib.sha256()
    left = sys.maxsize if limit is None else limit
    while left and (piece := stream.read(min(left, 1 << 20))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest() if limit is None or not left else None


def first_source(sources: Sequence[InputFile]) -> InputFile:
    """Return the input that names the run: of the lowest rank, at any place in an archive."""
    return min(sources, key=_rank_order)


def _rank_order(file: InputFile) -> tuple[object, ...]:
    return *file.facts.order, file.entry.label


def original_order(label: str) -> tuple[bool, int, str]:
    """Return the key that sorts names of equal content: those that are called a copy come last.

    It depends on names alone, so that lakes of the same inputs agree, whichever came first.
    """
    return _COPIED.search(label) is not None, len(label), label


def original_run_order(labels: Collection[str], stamps: Iterable[object]) -> RunOrder:
    """Return the key that sorts runs of equal content: most inputs first, then one with a date."""
    return -len(labels), all(one is None for one in stamps), original_order(min(labels))


def feeding_order(file: InputFile) -> tuple[object, ...]:
    """Return tar members in the order of the archive, others by rank and path."""
    entry = file.entry
    if entry.packed:
        return (0, entry.path, entry.position)
    return (1, *_rank_order(file))


def run_id_of(sources: Sequence[InputFile], digest: str) -> str:
    """Return readable name of the run and the first digits of a hash."""
    return f"{slug(first_source(sources).facts.stem)}-{digest[:_HASH_DIGITS]}"


def group_of(run_id: str, sources: Sequence[InputFile]) -> str:
    """Return the manifest of a new run: its own if it is one file, else its folder's."""
    if len(sources) == 1:
        return run_id
    labels = (c.entry.label for c in sources)
    folders = {label[: label.rfind("/") + 1] for label in labels}
    folder = os.path.commonpath([posixpath.dirname(name) or "." for name in folders])
    digest = hashlib.sha256(f"{sources[0].format.name}\0{folder}".encode()).hexdigest()
    return f"{slug(PurePosixPath(folder).name)}-{digest[:_HASH_DIGITS]}"
