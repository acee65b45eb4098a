"""Sniff an input: decide its format from first bytes and name, and read its facts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from tracelake.formats import Claim, FileFacts, Format, formats
from tracelake.ingest.known_inputs import ID_BYTES, beginnings_of
from tracelake.inputs.discover import Skip
from tracelake.inputs.heads import Found, plain_head
from tracelake.inputs.streams import FileRef, strip_suffix


class Verdict(NamedTuple):
    """The decision on an input that has a format.

    Attributes:
        base: Facts as the format read them.
        head_hash: SHA-256 of the first 4 KiB.
        beginnings: See `beginnings_of`.
    """

    format: Format
    base: FileFacts
    head_hash: str
    beginnings: str


Judged: TypeAlias = Verdict | Skip
"""Decision on an input: a verdict, or the reason to skip it."""


def judge(found: Found, forced: Format | None) -> Judged:
    """Decide on an input by its first bytes.

    Args:
        forced: Format to use whatever the bytes are; None lets the content decide.
    """
    entry, head = found
    fmt = forced or _choose(head)
    if isinstance(fmt, str):
        return Skip(entry.path, entry.member, fmt)
    base = fmt.facts(strip_suffix(entry.label), head)
    head_hash = hashlib.sha256(head[:ID_BYTES]).hexdigest()
    return Verdict(fmt, base, head_hash, beginnings_of(head))


def judge_file(entry: FileRef, forced: Format | None) -> Judged | None:
    """Decide on a plain file; return None for an archive or compressed file."""
    found = plain_head(entry)
    return judge(found, forced) if isinstance(found, Found) else found


def plain_verdicts(judged: Sequence[Judged | None]) -> list[Any]:
    """Return verdicts as plain values that another process understands.

    Facts are those that a format reads; the user's values are applied later.
    """
    sizes: dict[int, tuple[int, dict[str, int]]] = {}
    plain: list[Any] = []
    for one in judged:
        if isinstance(one, Verdict):
            base = one.base
            place, _ = sizes.setdefault(id(base.topology), (len(sizes), dict(base.topology)))
            stamp = None if base.stamp is None else base.stamp.isoformat()
            plain.append([one.format.name, base[:5], stamp, place, *one[2:]])
        else:
            plain.append(one and [one.reason, one.lasting])
    return [[mapping for _, mapping in sizes.values()], plain]


def verdicts_of(plain: Sequence[Any], entries: Sequence[FileRef]) -> list[Judged | None]:
    """Return the verdicts on these entries from plain values."""
    sizes, told = plain
    judged: list[Judged | None] = []
    for one, entry in zip(told, entries, strict=True):
        if one is None:
            judged.append(None)
        elif len(one) == 2:  # a reason
            judged.append(Skip(entry.path, entry.member, *one))
        else:
            name, (path, stem, rank, host, device), stamp, place, *hashes = one
            date = None if stamp is None else datetime.fromisoformat(stamp)
            base = FileFacts(
                path, intern(stem), rank, host, device, stamp=date, topology=sizes[place]
            )
            judged.append(Verdict(formats()[name], base, *hashes))
    return judged


def _choose(head: bytes) -> Format | str:
    """Return the format with the strongest claim, or the reason why there is none."""
    best = Claim.NO
    chosen: Format | str = "no_format"
    for fmt in formats().values():
        claim = fmt.sniff(head)
        if claim > best:
            best, chosen = claim, fmt
        elif claim is best is not Claim.NO:
            chosen = "ambiguous"
    return chosen
