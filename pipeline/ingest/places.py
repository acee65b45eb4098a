"""Name the hosts of ranks by logs that lie beside their files."""

from __future__ import annotations

import contextlib
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tracelake.formats import Places
from tracelake.ingest.hosts import Place
from tracelake.ingest.sniff import InputFile, Sniffed
from tracelake.inputs.sources import open_entry
from tracelake.inputs.streams import DECODE_ERRORS

# By folder and size of the job: places by rank.
_Known = dict[str, dict[int, Mapping[int, tuple[str, str]]]]
# A larger log is not read for the sake of hosts.
_LARGEST = 256 << 20


def name_hosts(sniffed: Sniffed) -> None:
    """Give files of ranks without a host the place that a log in their folder or above names.

    What a name, a folder or `--hosts` says comes first. The nearest log counts, of a job of as many
    ranks. Several logs of one folder, as processes write them, complete each other, and count only
    where they agree.
    """
    for number, files in enumerate(sniffed.files):
        wanted = {folder for c in files if not _placed(c) for folder in _folders(c)}
        known: _Known = defaultdict(dict)
        unclear: set[tuple[str, int]] = set()
        for c in files:
            folder = posixpath.dirname(c.facts.path)
            if folder in wanted and (places := _read(c)):
                size = places.world_size
                before = known[folder].get(size, {})
                if any(before.get(rank, place) != place for rank, place in places.by_rank.items()):
                    unclear.add((folder, size))
                known[folder][size] = {**before, **places.by_rank}
        for folder, size in unclear:
            known[folder][size] = {}
        if known:
            sniffed.files[number] = [_named(c, known) for c in files]


def _placed(file: InputFile) -> bool:
    return file.facts.rank is None or file.facts.host is not None


def _folders(file: InputFile) -> Iterator[str]:
    """Yield the folder of a file, and those above it."""
    folder = posixpath.dirname(file.facts.path)
    yield folder
    while folder:
        folder = posixpath.dirname(folder)
        yield folder


def _read(file: InputFile) -> Places | None:
    places, entry = file.format.places, file.entry
    if places and not entry.packed and entry.weight <= _LARGEST:
        with contextlib.suppress(*DECODE_ERRORS), open_entry(entry) as (stream, _):
            found = places(stream)
            return found if found.by_rank else None
    return None


def _named(file: InputFile, known: _Known) -> InputFile:
    """Return the file with its place, if the nearest log names its rank."""
    rank = file.facts.rank
    if rank is None or _placed(file):
        return file
    jobs = next((known[folder] for folder in _folders(file) if folder in known), {})
    size = file.facts.topology.get("world_size")
    if size is None and len(jobs) == 1:  # else nothing says of which job the file is
        (size,) = jobs
    place = jobs.get(size or 0, {}).get(rank)
    if place is None:
        return file
    host, device = place
    facts = file.facts._replace(host=host, device=device)
    return file._replace(facts=facts, place=Place(rank, host, device, None, 0))
