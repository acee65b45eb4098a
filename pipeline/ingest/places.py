"""Name the hosts of ranks by logs that lie beside their files."""

from __future__ import annotations

import contextlib
import posixpath

from tracelake.formats import Places
from tracelake.ingest.find import Findings, InputFile
from tracelake.ingest.host_map import Place
from tracelake.inputs.opening import open_entry
from tracelake.inputs.streams import DECODE_ERRORS

# A larger log is not read for the sake of hosts.
_LARGEST = 256 << 20


def name_hosts(findings: Findings) -> None:
    """Give files of ranks without a host the place that a log in their folder or above names.

    What a name, a folder or `--hosts` says comes first. The nearest log counts, and several logs of
    one folder only where they agree.
    """
    for number, candidates in enumerate(findings.candidates):
        if all(_placed(c) for c in candidates):
            continue
        known: dict[str, Places] = {}
        for c in candidates:
            if c.format.places and not c.entry.packed and c.entry.weight <= _LARGEST:
                folder = posixpath.dirname(c.facts.path)
                places = _read(c)
                if places:
                    known[folder] = places if known.get(folder, places) == places else {}
        if known:
            findings.candidates[number] = [_named(c, known) for c in candidates]


def _placed(candidate: InputFile) -> bool:
    return candidate.facts.rank is None or candidate.facts.host is not None


def _read(candidate: InputFile) -> Places:
    if candidate.format.places is None:
        return {}
    with contextlib.suppress(*DECODE_ERRORS), open_entry(candidate.entry) as (stream, _):
        return candidate.format.places(stream)
    return {}


def _named(candidate: InputFile, known: dict[str, Places]) -> InputFile:
    """Return the file with its place, if the nearest log names its rank."""
    if _placed(candidate):
        return candidate
    folder = posixpath.dirname(candidate.facts.path)
    while folder and folder not in known:
        folder = posixpath.dirname(folder)
    rank = candidate.facts.rank
    place = known.get(folder, {}).get(-1 if rank is None else rank)
    if place is None or rank is None:
        return candidate
    host, device = place
    facts = candidate.facts._replace(host=host, device=device)
    return candidate._replace(facts=facts, place=Place(rank, host, device, None, 0))
