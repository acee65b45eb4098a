"""Keep what counts of the events of one rank, and make rows of it."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np

from tracelake.formats.documents import Tables
from tracelake.formats.kineto.document import Level, text_of
from tracelake.formats.kineto.names import (
    collective_of,
    dtype_of,
    group_by_ranks,
    group_of,
    is_communication,
    kernel_name,
    width_of,
)
from tracelake.schema.topology import LARGEST, stage_of

_LONGEST_NS = 2**63 - 1
_STEP = re.compile(r"ProfilerStep#(\d{1,10})")
_KERNELS = frozenset({"kernel", "Kernel"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset"})
_CALLS = "record_param_comms"


class _Call(NamedTuple):
    """What the trace says about a communication."""

    collective: str | None = None
    elements: tuple[int | None, int | None] = (None, None)  # in and out
    dtype: str | None = None
    group_size: int | None = None
    group: str | None = None
    group_text: str | None = None
    ranks: str | None = None


class Group(NamedTuple):
    """A process group as the trace lists it."""

    description: str | None = None
    size: int | None = None
    ranks: object = None


class Events:
    """The kernels, copies, steps and communications of one document.

    A kernel takes some 50 bytes until the end of the document, because steps may stand after it.
    """

    def __init__(self) -> None:
        self.members: dict[str, Any] = {}
        self._lines = array("q")
        self._starts = array("q")
        self._ends = array("q")
        self._names = array("i")
        self._streams = array("q")
        self._texts: dict[tuple[str, bool], int] = {}  # name, is a kernel
        self._calls: dict[int, _Call] = {}  # by External id
        self._own: dict[int, tuple[_Call | None, int | None]] = {}  # by number of the kernel
        self._host_steps: dict[int, tuple[int, int, int]] = {}  # start, end, line
        self._device_steps: dict[int, int] = {}

    def take_member(self, key: str, value: object) -> None:
        """Keep a member of the document that says something about the run."""
        if key in ("distributedInfo", "deviceProperties"):
            self.members[key] = value

    def take_event(self, event: object, line: int) -> Level | str:
        """Keep an event; return what its lines are, or why it is rejected."""
        if not isinstance(event, dict):
            return "no_event"
        if event.get("ph") != "X":
            return Level.EVENT
        category, name = event.get("cat"), event.get("name")
        if category in _KERNELS or category in _COPIES:
            return self._take_work(event, line, kernel=category in _KERNELS)
        if category == "cpu_op" and name == _CALLS:
            return self._take_call(event)
        if category in ("user_annotation", "gpu_user_annotation") and isinstance(name, str):
            step = _STEP.fullmatch(name)
            if step and int(step[1]) <= LARGEST:
                return self._take_step(event, int(step[1]), line, device=category[0] == "g")
        return Level.EVENT

    def _take_work(self, event: Mapping[str, Any], line: int, *, kernel: bool) -> Level | str:
        name, times = text_of(event.get("name")), _times(event)
        if name is None or times is None:
            return "no_event" if name is None else "bad_number"
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if kernel and is_communication(name):
            own = _call_of(args) if "Collective name" in args else None
            self._own[len(self._lines)] = own, _whole(args.get("External id"))
        stream = _whole(args.get("stream", event.get("tid")))
        self._lines.append(line)
        self._starts.append(times[0])
        self._ends.append(times[1])
        self._streams.append(-1 if stream is None else stream)
        self._names.append(self._texts.setdefault((name, kernel), len(self._texts)))
        return Level.ROW

    def _take_call(self, event: Mapping[str, Any]) -> Level:
        args = event.get("args")
        key = _whole(args.get("External id")) if isinstance(args, dict) else None
        if key is None or not isinstance(args, dict):
            return Level.EVENT
        self._calls[key] = _call_of(args)
        return Level.CONTEXT

    def _take_step(
        self, event: Mapping[str, Any], step: int, line: int, *, device: bool
    ) -> Level | str:
        times = _times(event)
        if times is None:
            return "bad_number"
        if device:
            self._device_steps[step] = min(times[0], self._device_steps.get(step, times[0]))
            return Level.CONTEXT
        if step in self._host_steps:
            return Level.EVENT
        self._host_steps[step] = (*times, line)
        return Level.ROW

    def columns(self, source: int, rank: int, sizes: Mapping[str, int]) -> Tables:
        """Return the rows of this document, in order of their lines."""
        groups = self.groups()
        names = [(kernel_name(text), text, kernel) for text, kernel in self._texts]
        starts = np.frombuffer(self._starts, np.int64)
        order = np.argsort(starts, kind="stable")
        seq = np.empty(starts.size, np.int64)
        seq[order] = np.arange(1, starts.size + 1)
        steps = self._steps_of(starts)
        numbers = range(len(self._names))
        calls = {i: self._call(i, names[self._names[i]][1]) for i in self._own}

        def column(pick: Callable[[int], Any]) -> list[Any]:
            return [pick(i) for i in numbers]

        shared: dict[str, list[Any]] = {
            "source_id": [source] * len(numbers),
            "line": self._lines.tolist(),
            "rank": [rank] * len(numbers),
            "stage": [stage_of(rank, sizes)] * len(numbers),
            "step": steps.tolist(),
            "seq": seq.tolist(),
            "start_ns": starts.tolist(),
            "end_ns": self._ends.tolist(),
            "duration_ns": (np.frombuffer(self._ends, np.int64) - starts).tolist(),
        }
        own = [calls.get(i) for i in numbers]
        shared["group_kind"] = [call and _kind(call, groups, rank, sizes) for call in own]
        shared["dtype"] = [call.dtype if call else None for call in own]
        shared["bytes"] = [_bytes(call) if call else None for call in own]
        ops: dict[str, list[Any]] = shared | {
            "op": column(lambda i: names[self._names[i]][0]),
            "description": column(lambda i: names[self._names[i]][1]),
            "category": [
                (
                    call.collective
                    and ("p2p" if call.collective in ("send", "recv") else "collective")
                )
                if call
                else ("compute" if names[code][2] else None)
                for call, code in zip(own, self._names, strict=True)
            ],
            "stream": [None if s < 0 else str(s) for s in self._streams],
        }
        comms: dict[str, list[Any]] = {
            key: [values[i] for i in calls] for key, values in shared.items()
        } | {
            "collective": [call.collective for call in calls.values()],
            "raw_func": [names[self._names[i]][0] for i in calls],
            "raw_group": [_group_text(call) for call in calls.values()],
            "attributes": [_attributes(call) for call in calls.values()],
        }
        train_steps: dict[str, list[Any]] = {
            "source_id": [source] * len(self._host_steps),
            "line": [line for _, _, line in self._host_steps.values()],
            "step": list(self._host_steps),
            "step_time_ns": [end - start for start, end, _ in self._host_steps.values()],
            "rank": [rank] * len(self._host_steps),
            "time_basis": ["own"] * len(self._host_steps),
        }
        return {"ops": ops, "comms": comms, "train_steps": train_steps}

    def _steps_of(self, starts: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        """Return the step of each start: the last that had begun; 0 in a trace without steps."""
        begun = {step: start for step, (start, _, _) in self._host_steps.items()}
        begun |= self._device_steps
        if not begun:
            return np.zeros(starts.size, np.int64)
        ordered = sorted(begun, key=lambda step: begun[step])
        places = np.searchsorted([begun[step] for step in ordered], starts, side="right") - 1
        return np.array(ordered)[np.maximum(places, 0)]

    def _call(self, number: int, name: str) -> _Call:
        """Return what is known of the communication of a kernel."""
        own, key = self._own[number]
        found = own or (self._calls.get(key) if key is not None else None) or _Call()
        if found.collective is None:
            found = found._replace(collective=collective_of(name))
        return found

    def groups(self) -> dict[str, Group]:
        """Return the rank's process groups by name."""
        info = self.members.get("distributedInfo")
        listed = info.get("pg_config") if isinstance(info, dict) else None
        return {
            str(group.get("pg_name")): Group(
                text_of(group.get("pg_desc")), _whole(group.get("pg_size")), group.get("ranks")
            )
            for group in (listed if isinstance(listed, list) else ())
            if isinstance(group, dict)
        }


def _times(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return start and end in ns, exact to the ns; None if there are none."""
    start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start is None or length is None or start + length > _LONGEST_NS:
        return None
    return start, start + length


def nanoseconds(value: object) -> int | None:
    """Return a time in us as ns; None if it is no number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, int):
        return value * 1000 if 0 <= value <= _LONGEST_NS else None
    whole, _, part = value.partition(".")
    if len(whole) < 17 and len(part) <= 3 and whole.isdigit() and part.isdigit():
        return int(whole + part.ljust(3, "0"))
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or not 0 <= number < _LONGEST_NS // 1000:
        return None
    return int((number * 1000).to_integral_value())


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LONGEST_NS
    return value if whole else None  # type: ignore[return-value]


def _call_of(args: Mapping[str, Any]) -> _Call:
    """Return what the arguments of a communication say, by name or else as they were passed."""
    if "Collective name" in args:
        return _Call(
            collective_of(text_of(args["Collective name"]) or ""),
            (_whole(args.get("In msg nelems")), _whole(args.get("Out msg nelems"))),
            dtype_of(text_of(args.get("dtype"))),
            _whole(args.get("Group size")),
            text_of(args.get("Process Group Name")),
            text_of(args.get("Process Group Description")),
            text_of(args.get("Process Group Ranks")),
        )
    shapes, types, values = (
        value if isinstance(value, list) and value else [None]
        for value in (args.get(key) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    )
    shape = shapes[0]
    sizes = [_whole(size) for size in shape] if isinstance(shape, list) else []
    known = [size for size in sizes if size]
    text = str(values[-1])
    return _Call(
        elements=(math.prod(known) if known and known == sizes else None, None),
        dtype=dtype_of(text_of(types[0])),
        group_size=int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None,
    )


def _kind(
    call: _Call, groups: Mapping[str, Group], rank: int, sizes: Mapping[str, int]
) -> str | None:
    """Return the kind of a call's group: as it is described, else by its ranks."""
    listed = groups.get(call.group or "", Group())
    described = group_of(call.group_text) or group_of(listed.description)
    return described or group_by_ranks(listed.ranks, rank, sizes)


def _bytes(call: _Call) -> int | None:
    elements = call.elements[1] if call.collective == "recv" else call.elements[0]
    width = width_of(call.dtype)
    if elements is None or width is None or elements * width > _LONGEST_NS:
        return None
    return elements * width


def _group_text(call: _Call) -> str | None:
    described = call.group_text not in (None, "", "undefined")
    return call.group_text if described else call.group


def _attributes(call: _Call) -> list[tuple[str, str]]:
    size = None if call.group_size is None else str(call.group_size)
    said = (("group", call.group), ("group_size", size), ("ranks", call.ranks))
    return [(key, value) for key, value in said if value]
