"""Write events of the Trace Event Format as text: processes, threads, and their slices.

A process is a rank, a thread one kind of its operations. The slices of a thread never overlap: a
slice that would overlap goes to a further thread of its kind. Only the transfer of a receive lies
inside another slice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# Kind of slice -> name of its thread, in order of display.
TRACKS = {
    "window": "pipeline windows",
    "step": "steps",
    "compute": "compute",
    "in_op": "communication inside operations",
    "p2p": "p2p",
    "collective": "collective",
    "optimizer": "optimizer",
    "data": "data",
    "other": "other operations",
    "waiting": "waiting",
}
_PLACE = {kind: place for place, kind in enumerate(TRACKS)}


class Slice(NamedTuple):
    """A slice from the queries; its texts lack the thread and the end.

    Attributes:
        rank: None for the pipeline as a whole.
        flow: Event of the arrow that starts or ends here.
        waited_ns: End of the wait at its beginning.
        transfer: Slice inside a receive that ends with it.
    """

    rank: int | None
    kind: str
    from_ns: int
    to_ns: int
    text: str
    flow: str | None = None
    waited_ns: int | None = None
    wait: str | None = None
    transfer: str | None = None


class Threads:
    """Puts slices on threads and counts them.

    Args:
        pid: Process id of the pipeline; thread ids are above it.

    Attributes:
        slices: Number of slices written, by kind.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spare = pid + 1 + pid * len(TRACKS)
        self._ends: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.slices: Counter[str] = Counter()

    def events(self, slices: Iterable[Slice]) -> Iterator[str]:
        """Yield text of the slices; the name of a new thread comes before its first slice."""
        for slice_ in slices:
            pid = self._pid if slice_.rank is None else slice_.rank + 1
            kind = slice_.kind if slice_.kind in TRACKS else "other"
            tid, named = self._thread(pid, kind, slice_.from_ns, slice_.to_ns)
            yield from named
            yield f'{slice_.text},"tid":{tid}}}'
            if slice_.transfer is not None:
                self.slices["transfer"] += 1
                yield f'{slice_.transfer},"tid":{tid}}}'
            if slice_.flow is not None:
                yield f'{slice_.flow},"tid":{tid}}}'
            if slice_.wait is not None and slice_.waited_ns is not None:
                tid, named = self._thread(pid, "waiting", slice_.from_ns, slice_.waited_ns)
                yield from named
                yield f'{slice_.wait},"tid":{tid}}}'

    def _thread(self, pid: int, kind: str, from_ns: int, to_ns: int) -> tuple[int, tuple[str, ...]]:
        """Return the first free thread of the kind at that time, and its name if it is new."""
        self.slices[kind] += 1
        lanes = self._ends.setdefault((pid, kind), [])
        for lane, (tid, end_ns) in enumerate(lanes):
            if end_ns <= from_ns:
                lanes[lane] = (tid, to_ns)
                return tid, ()
        tid = self._pid + 1 + (pid - 1) * len(TRACKS) + _PLACE[kind]
        name = TRACKS[kind]
        if lanes:
            tid, self._spare = self._spare, self._spare + 1
            name = f"{name} ({len(lanes) + 1})"
        lanes.append((tid, to_ns))
        return tid, (
            metadata("thread_name", {"name": name}, pid, tid),
            metadata("thread_sort_index", {"sort_index": _PLACE[kind]}, pid, tid),
        )


def metadata(name: str, args: Mapping[str, Any], pid: int, tid: int | None = None) -> str:
    """Return a metadata event of a process, or of one of its threads."""
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return as_json({"ph": "M", "name": name, **where, "args": args})


def as_json(value: object) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
