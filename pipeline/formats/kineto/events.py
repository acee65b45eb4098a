"""Keep what counts of the events of one document."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tracelake.formats.kineto import scan
from tracelake.formats.kineto.document import DECODER, decoded
from tracelake.formats.kineto.names import (
    collective_of,
    dtype_of,
    is_communication,
    is_split_pass,
    pass_of,
)
from tracelake.formats.kineto.scan import Rows, read_events
from tracelake.formats.readers import BadValueError, rounded_ns
from tracelake.kernels.numbers import Bytes, Longs
from tracelake.kernels.tokens import TokenTable, intern
from tracelake.schema.topology import LARGEST

LONGEST_NS = 2**63 - 1
_NOTES = 1 << 10
_STEP = re.compile(r"ProfilerStep#(\d{1,10})")
_KERNELS = frozenset({"kernel", "Kernel"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
_OPERATORS = frozenset({"cpu_op", "Operator"})  # before PyTorch 1.12, steps are among them
_CALLS = "record_param_comms"
_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")  # of the host, of the device


class Call(NamedTuple):
    """Hold what the trace says about a communication."""

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
    """The kernels, copies, passes, steps and communications of one document.

    A kernel takes 36 bytes until the end of the document, because steps may stand after it.

    Attributes:
        host_passes: The host annotates passes of a pipeline.
        split_passes: So it does, or the device, with passes that are no whole forward or backward.
    """

    def __init__(self) -> None:
        self.members: dict[str, Any] = {}
        self.host_passes = False
        self.split_passes = False
        self.names = TokenTable([])
        self.host_steps: dict[int, tuple[int, int, int]] = {}  # start, end, line
        self.device_steps: dict[int, int] = {}
        self._processes: set[object] = set()  # that annotate steps
        self._notes = scan.Notes(np.empty((_NOTES, 3), np.int64), np.zeros(1, np.int64))
        self._spans = np.zeros((scan.KEYS, 2), np.int64)  # of the values of an event
        self._rows = [scan.new_rows()]
        self._calls: dict[int, Call] = {}  # by External id
        self._own: dict[int, tuple[Call | None, int | None]] = {}  # by number of the kernel
        self._same: dict[Call, Call] = {}

    def scan(self, data: Bytes, at: int, end: int, base: int, place: Longs) -> int:
        """Take plain events; return where the next one begins that has to be decoded."""
        notes, full = self._notes, True
        while full:
            rows, names = self._room(), self.names.tokens
            at = read_events(data, at, end, base, place, self._spans, rows, notes, names)
            full = rows.size[0] == scan.ROWS or notes.size[0] == len(notes.at)
            for begin, stop, row in notes.at[: notes.size[0]].tolist():
                event = DECODER.decode(data[begin:stop].tobytes().decode("latin-1"))
                if row < 0:
                    self._take_call(event)
                else:
                    self._take_communication(row, _arguments(event))
            notes.size[0] = 0
        return at

    def _room(self) -> Rows:
        """Return rows with space for another."""
        if self._rows[-1].size[0] == scan.ROWS:
            self._rows.append(scan.new_rows())
        return self._rows[-1]

    def take_member(self, key: str, value: object) -> None:
        """Keep a member of the document that says something about the run."""
        if key in ("distributedInfo", "deviceProperties"):
            self.members[key] = value

    def take_event(self, event: object, line: int) -> int | str:
        """Keep an event; return what its lines are, or why it is rejected."""
        if not isinstance(event, dict):
            return "no_event"
        if event.get("ph") != "X":
            return scan.EVENT
        category, name = event.get("cat"), event.get("name")
        if category in _KERNELS or category in _COPIES:
            return self._take_work(event, line, kernel=category in _KERNELS)
        if category in _OPERATORS and name == _CALLS:
            return self._take_call(event)
        if isinstance(name, str) and (
            category in _ANNOTATIONS or (category in _OPERATORS and _STEP.fullmatch(name))
        ):
            return self._take_annotation(event, name, line, device=category == _ANNOTATIONS[1])
        return scan.EVENT

    def _take_annotation(
        self, event: Mapping[str, Any], name: str, line: int, *, device: bool
    ) -> int | str:
        step = _STEP.fullmatch(name)
        if step is None:
            self.split_passes |= is_split_pass(name)
            if not pass_of(name):
                return scan.EVENT
            if not device:
                self.host_passes = True
                return scan.EVENT
        elif int(step[1]) > LARGEST:
            return scan.EVENT
        times = _times(event)
        if times is None:
            return "bad_number"
        if step:
            return self._take_step(event.get("pid"), int(step[1]), times, line, device=device)
        self._add(name, scan.PASS, line, times, whole(event.get("tid")))
        return scan.ROW

    def _take_work(self, event: Mapping[str, Any], line: int, *, kernel: bool) -> int | str:
        name, times = decoded(event.get("name")), _times(event)
        if name is None or times is None:
            return "no_event" if name is None else "bad_number"
        args = _arguments(event)
        if kernel and is_communication(name):
            self._take_communication(int(self._room().size[0]), args)
        stream = whole(args.get("stream", event.get("tid")))
        device = whole(event.get("pid"))
        if kernel and device is not None:
            devices = self._room().devices
            devices[:] = min(devices[0], device), max(devices[1], device)
        self._add(name, scan.KERNEL if kernel else scan.COPY, line, times, stream)
        return scan.ROW

    def _add(
        self, name: str, kind: int, line: int, times: tuple[int, int], stream: int | None
    ) -> None:
        rows = self._room()
        n = int(rows.size[0])
        rows.wide[:, n] = line, *times, -1 if stream is None else stream
        rows.names[n] = 4 * self._token(name) + kind
        rows.size[0] += 1

    def _token(self, name: str) -> int:
        text = np.frombuffer(bytearray(name.encode()), np.uint8)
        self.names.reserve(text.size)
        return intern(self.names.tokens, text, 0, text.size)

    def _shared(self, call: Call) -> Call:
        """Return one object for equal calls."""
        return self._same.setdefault(call, call)

    def _take_communication(self, row: int, args: Mapping[str, Any]) -> None:
        """Keep what the kernel of the last part's row says about its communication."""
        own = self._shared(_call_of(args)) if "Collective name" in args else None
        key = args.get("External id", args.get("external id"))
        self._own[row + scan.ROWS * (len(self._rows) - 1)] = own, whole(key)

    def _take_call(self, event: Mapping[str, Any]) -> int:
        args = _arguments(event)
        key = whole(args.get("External id"))
        if key is not None:
            self._calls[key] = self._shared(_call_of(args))
        return scan.CONTEXT

    def _take_step(
        self, process: object, step: int, times: tuple[int, int], line: int, *, device: bool
    ) -> int:
        if device:
            self.device_steps[step] = min(times[0], self.device_steps.get(step, times[0]))
            return scan.CONTEXT
        self._processes.add(process)
        if step in self.host_steps:
            return scan.EVENT
        self.host_steps[step] = (*times, line)
        return scan.ROW

    @property
    def merged(self) -> bool:
        """Return whether several processes annotate steps, or kernels ran on several devices.

        Then traces of several ranks were put together, or a process has several devices.
        """
        devices = [rows.devices for rows in self._rows if rows.devices[1] >= 0]
        several = devices and min(d[0] for d in devices) < max(d[1] for d in devices)
        return bool(several) or len(self._processes) > 1

    @property
    def rows(self) -> list[Rows]:
        """Return what may become a row, in order of the lines; every part but the last is full."""
        return [rows for rows in self._rows if rows.size[0]]

    def calls(self) -> dict[int, Call]:
        """Return what is known of each communication, by the number of its kernel."""
        return {
            number: own or (self._calls.get(key) if key is not None else None) or Call()
            for number, (own, key) in self._own.items()
        }

    def groups(self) -> dict[str, Group]:
        """Return the rank's process groups by name."""
        info = self.members.get("distributedInfo")
        listed = info.get("pg_config") if isinstance(info, dict) else None
        return {
            str(group.get("pg_name")): Group(
                decoded(group.get("pg_desc")), whole(group.get("pg_size")), group.get("ranks")
            )
            for group in (listed if isinstance(listed, list) else ())
            if isinstance(group, dict)
        }


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _times(event: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return start and end in ns, exact to the ns; None if there are none."""
    start, length = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if start is None or length is None or start + length > LONGEST_NS:
        return None
    return start, start + length


def nanoseconds(value: object) -> int | None:
    """Return a time in us as ns; None if it is no number from 0 to 292 years."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        found = rounded_ns(str(value), 3)
    except BadValueError:
        return None
    return found if 0 <= found < LONGEST_NS // 1000 * 1000 else None


def whole(value: object, most: int = LONGEST_NS) -> int | None:
    """Return a whole number from 0 on; None if it is none, or too large."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    return value if fits else None  # type: ignore[return-value]


def _call_of(args: Mapping[str, Any]) -> Call:
    """Return what the arguments of a communication say, by name or else as they were passed."""
    if "Collective name" in args:
        return Call(
            collective_of(decoded(args["Collective name"]) or ""),
            (whole(args.get("In msg nelems")), whole(args.get("Out msg nelems"))),
            dtype_of(decoded(args.get("dtype"))),
            whole(args.get("Group size")),
            decoded(args.get("Process Group Name")),
            decoded(args.get("Process Group Description")),
            decoded(args.get("Process Group Ranks")),
        )
    shapes, types, values = (
        value if isinstance(value, list) and value else [None]
        for value in (args.get(key) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    )
    shape = shapes[0]
    sizes = [whole(size) for size in shape] if isinstance(shape, list) else []
    known = [size for size in sizes if size]
    text = str(values[-1])
    return Call(
        elements=(math.prod(known) if known and known == sizes else None, None),
        dtype=dtype_of(decoded(types[0])),
        group_size=int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None,
    )
