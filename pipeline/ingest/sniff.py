"""Sniff an input: decide its format from first bytes and name, and read its facts."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, TypeAlias

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
