"""Read logs of NCCL: host and device of every rank, over what ranks talk, and what it warned of.

With NCCL_DEBUG_FILE each process writes a file of its own. Files of a folder whose names differ in
the host and process that their lines name are one run, until a rank repeats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from tracelake.formats import Claim, FileFacts, Places, RunFacts
from tracelake.formats.endings import LINE, WARNS, Ending, first_cause
from tracelake.formats.lines import Irrelevant, LineFormat, Record, Reject
from tracelake.formats.readers import Rows, whole
from tracelake.formats.starts import runs_of

_INIT = re.compile(
    r".*?([A-Za-z0-9_.-]+):\d+:\d+ \[\d+\] NCCL INFO .*\bcomm 0x[0-9a-f]+ rank (\d+)"
    r" n[Rr]anks (\d+) cudaDev (\d+) (?:nvmlDev \d+ )?(?:busId ([0-9a-f]+) )?.*Init COMPLETE.*",
    re.ASCII,
)
_SMALL_DIGITS = 3
_TRANSPORTS = "transports"
_PROCESS = re.compile(rf"([A-Za-z0-9_.-]+):(\d{{1,9}}):\d+ \[\d+\] (?:NCCL INFO |{WARNS})".encode())
# Names have blanks (`direct shared memory`, `NET/AWS Libfabric`); RCCL adds the communicator.
_VIA = re.compile(
    r".* NCCL INFO (?:Channel|Ring) .* via (\S.*?)(?:/\d+(?:\(\d+\))?(/GDRDMA)?.*| comm 0x.*)?\s*",
    re.ASCII,
)


def _sniff(head: bytes) -> Claim:
    warns = b" NCCL WARN " in head and _PROCESS.search(head)
    return Claim.MAYBE if b" NCCL INFO " in head or warns else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    """Read rank and host of a process that writes a file of its own; else the name alone."""
    name = re.sub(r"\.(?:log|txt|out|err)$", "", PurePosixPath(path).name)
    process = _PROCESS.search(head)
    host, number = (part.decode() for part in process.groups()) if process else ("", "")
    pieces = re.split(rf"(?<!\d){number}(?!\d)", name) if number else [name]
    # In a container numbers of processes are small, and a name may have one by chance.
    if len(pieces) != 2 or not (host in name or len(number) > _SMALL_DIGITS):
        return FileFacts(path, PurePosixPath(path).stem)
    stem = re.sub(r"[._-]+", "-", "-".join(pieces).replace(host, "-")).strip("-")
    ranks = places_of(head.splitlines()).by_rank
    rank = next(iter(ranks)) if len(ranks) == 1 else None
    return FileFacts(path, stem or "nccl", rank=rank, host=host)


def _group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Join the files of the processes of a job."""
    # A process whose rank is not known repeats none.
    return runs_of(files, gap_seconds, _job, lambda f: -1 - f.key if f.rank is None else f.rank)


def _job(file: FileFacts) -> tuple[object, ...]:
    place = file.path if file.host is None else PurePosixPath(file.path).parent
    return place, file.stem


def places_of(lines: Iterable[bytes]) -> Places:
    """Return host and device of every rank of the widest communicator.

    Nothing if communicators of that size contradict each other: then none of them is the job's.
    """
    widest, places, clear = 0, dict[int, tuple[str, str]](), True
    for raw in lines:
        found = _INIT.fullmatch(raw.decode("utf-8", "replace").rstrip()) if b"Init" in raw else None
        if found is None or len(found[2]) > 9 or len(found[3]) > 9:
            continue
        rank, size, place = int(found[2]), int(found[3]), (found[1], found[4])
        if size > widest:
            widest, places, clear = size, {}, True
        if size == widest:
            clear &= places.setdefault(rank, place) == place
    return Places(widest, places if clear and len(set(places.values())) == len(places) else {})


class _Reader:
    def __init__(self, facts: FileFacts) -> None:
        del facts
        self._transports: Counter[str] = Counter()
        self._widest = 0
        self._ending = Ending()

    def read(self, text: str) -> Rows | str:
        via = _VIA.fullmatch(text)
        if via is None and "Init COMPLETE" not in text:
            self._ending.read(text)
            return ()
        self._ending = Ending()  # ranks still connect
        if via:
            self._transports[via[1] + (via[2] or "")] += 1
            return ()
        found = _INIT.fullmatch(text)
        if found is None:
            return "broken_init"
        size = whole(found[3], 31)
        self._widest = max(self._widest, size)
        place = {"host": found[1], "device": found[4], "bus_id": found[5], "ranks": size}
        return [("comm_ranks", {"rank": whole(found[2], 31), **place})]

    def finish(self) -> RunFacts:
        cause = self._ending.attributes(None) if self._ending.kind else {}
        return _run_facts(self._widest, self._transports, cause)


def _run_facts(widest: int, transports: Counter[str], cause: dict[str, str]) -> RunFacts:
    counted = sorted(transports.items())
    used = {_TRANSPORTS: ", ".join(f"{name} {count}" for name, count in counted)}
    return RunFacts(
        topology={"world_size": widest} if widest else {},
        attributes=(used if counted else {}) | cause,
        ended=False if cause else None,
    )


def _join(found: Sequence[RunFacts]) -> RunFacts:
    """Return the facts of a run whose processes wrote a file each."""
    transports: Counter[str] = Counter()
    for facts in found:
        for piece in filter(None, facts.attributes.get(_TRANSPORTS, "").split(", ")):
            name, _, count = piece.rpartition(" ")
            transports[name] += int(count)
    widest = max(facts.topology.get("world_size", 0) for facts in found)
    return _run_facts(widest, transports, first_cause(facts.attributes for facts in found))


FORMAT = LineFormat(
    name="nccl_debug",
    version=10,
    facts=_facts,
    group=_group,
    join=_join,
    doc="Logs with NCCL_DEBUG=INFO or WARN: hosts, ranks, devices, transports, warnings.",
    sniff=_sniff,
    preamble_of=("training_log", "optimus"),
    reader=_Reader,
    tables=("comm_ranks",),
    prefixed=True,
    places=places_of,
    lines=(
        Record(r".* NCCL INFO .*comm 0x[0-9a-f]+ rank .* Init COMPLETE.*"),
        Record(r".* NCCL INFO (?:Channel|Ring) .* via \S.*"),
        Record(LINE),
        Reject(
            "broken_init",
            r".*comm 0x[0-9a-f]+ rank .* Init COMPLETE.*",
            "The beginning of a communicator without host, rank or device.",
        ),
        Irrelevant("nccl", r".*NCCL (?:INFO|WARN|TRACE) .*", "Other message of NCCL."),
        Irrelevant("blank", r"\s*", "Empty."),
        Irrelevant("other", r".*", "Anything else."),
    ),
)
