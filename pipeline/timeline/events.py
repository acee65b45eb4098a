"""Events of the Trace Event Format as text: processes, threads, and slices put on them.

A process is a rank, a thread one kind of its operations. The slices of a thread never overlap: one
that would goes to a further thread of its kind. Only the transfer of a receive lies in another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# Kind of slice -> name of its thread, in the order in which they are shown.
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
    """A slice as the queries give it; its texts lack the thread and the end.

    Attributes:
        rank: NULL for the pipeline as a whole.
        flow: Event of the arrow that touches it.
        waited_ns: End of the wait that it begins with.
        transfer: Slice inside it that ends with it, of a receive.
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
        pid: Process that stands for the pipeline; above it are the threads.

    Attributes:
        slices: How many were written, by kind.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spare = pid + 1 + pid * len(TRACKS)
        self._ends: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.slices: dict[str, int] = {}

    def events(self, slices: Iterable[Slice]) -> Iterator[str]:
        """Text of the slices, each after the name of a thread that it is the first on."""
        for slice_ in slices:
            pid = self._pid if slice_.rank is None else slice_.rank + 1
            kind = slice_.kind if slice_.kind in TRACKS else "other"
            tid, named = self._thread(pid, kind, slice_.from_ns, slice_.to_ns)
            yield from named
            yield f'{slice_.text},"tid":{tid}}}'
            if slice_.transfer is not None:
                self._count("transfer")
                yield f'{slice_.transfer},"tid":{tid}}}'
            if slice_.flow is not None:
                yield f'{slice_.flow},"tid":{tid}}}'
            if slice_.wait is not None and slice_.waited_ns is not None:
                tid, named = self._thread(pid, "waiting", slice_.from_ns, slice_.waited_ns)
                yield from named
                yield f'{slice_.wait},"tid":{tid}}}'

    def _count(self, kind: str) -> None:
        self.slices[kind] = self.slices.get(kind, 0) + 1

    def _thread(self, pid: int, kind: str, from_ns: int, to_ns: int) -> tuple[int, tuple[str, ...]]:
        """First thread of the kind that is free by then, and its name if it is new."""
        self._count(kind)
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
    """A metadata event of a process, or of one of its threads."""
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return as_json({"ph": "M", "name": name, **where, "args": args})


def as_json(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
