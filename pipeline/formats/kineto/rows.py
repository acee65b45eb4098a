"""Make the rows of one document, a batch at a time."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tracelake.formats.kineto.events import LONGEST_NS, Call, Events, Group
from tracelake.formats.kineto.names import (
    Pass,
    collective_of,
    group_by_ranks,
    group_of,
    is_exchange,
    kernel_name,
    pass_of,
    width_of,
)
from tracelake.formats.kineto.scan import AT_LINE, COPY, END, KERNEL, PASS, ROWS, START, STREAM
from tracelake.kernels.arrow import numbers, words
from tracelake.kernels.numbers import NULL, Longs
from tracelake.schema.tables import tables
from tracelake.schema.topology import LARGEST, stage_of

_OF_REPLICAS = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"}
_Columns = dict[str, pa.Array | Sequence[object]]


class DocumentRows:
    """The rows of one document, which are made when they are asked for.

    Attributes:
        counts: Number of rows by table.
        sizes: Sizes of the job.
    """

    def __init__(self, events: Events, source: int, rank: int) -> None:
        self._events = events
        self._source = source
        self._rank = rank
        self.sizes: Mapping[str, int] = {}
        self._parts = events.rows
        self._calls = sorted({**self._exchanges(), **events.calls()}.items())
        self._groups = events.groups()
        self._kinds = [part.names[: part.size[0]] % 4 for part in self._parts]
        has_passes = any(np.any(kinds == PASS) for kinds in self._kinds)
        # Of a schedule that splits backward passes the others would be a part of the work.
        self._has_passes = has_passes and not events.split_passes
        dropped = PASS if events.split_passes else -1
        self._kept = [np.flatnonzero(kinds != dropped) for kinds in self._kinds]
        if self._has_passes:
            self._keep_computing_passes()
        self.counts = {
            "ops": sum(kept.size for kept in self._kept),
            "comms": len(self._calls),
            "train_steps": len(events.host_steps),
        }

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, in order of their lines."""
        if table == "train_steps":
            yield tables()[table].batch(self._steps())
            return
        for number in range(len(self._parts)):
            first = number * ROWS
            calls = [(i - first, call) for i, call in self._calls if first <= i < first + ROWS]
            if table == "ops":
                yield tables()[table].batch(self._ops(number, calls))
            elif calls:
                yield tables()[table].batch(self._comms(number, calls))

    def pipeline_sizes(self) -> dict[str, int]:
        """Return what the passes say of the schedule."""
        if not self._has_passes:
            return {}
        seen = [named for named in self._named if named]
        stages = {named.virtual_stage for named in seen}
        sizes = {"micro_batches": 1 + max(named.micro_batch for named in seen)}
        return sizes | ({"vpp": len(stages)} if len(stages) > 1 else {})

    def replicas(self) -> int | None:
        """Return the number of ranks if they train replicas, which one group of all ranks says.

        All of its calls must join or spread what each rank has: messages from one rank to another,
        and those to experts, are of ranks that do different work.
        """
        (group, *others) = self._groups.values() or (None,)
        if others or group is None or group.description != "default_pg":
            return None
        found = [(call, int(self._parts[i // ROWS].names[i % ROWS])) for i, call in self._calls]
        # A copy does not say what it is a part of.
        kernels = [(call, self._short[name >> 2]) for call, name in found if name % 4 != COPY]
        done = {self._call(call, name).collective for call, name in kernels}
        return group.size if done and done <= _OF_REPLICAS else None

    def message(self) -> str | None:
        """Return type and elements of the message with most bytes in all, which tells jobs apart.

        Sizes that differ from call to call, such as those of experts, have few bytes each.
        """
        sent: Counter[str] = Counter()
        for call, calls in Counter(call for _, call in self._calls).items():
            if size := _bytes(call):
                sent[f"{call.dtype}[{size // (width_of(call.dtype) or 1)}]"] += calls * size
        return min(sent, key=lambda message: (-sent[message], message)) if sent else None

    def end_overruns(self) -> int:
        """Let work end where the next of its stream begins, if that has ended before it.

        Those that communicate stay as they are. Return how much work this is.
        """
        if not self._parts:
            return 0
        wide = np.concatenate([part.wide[:, : part.size[0]] for part in self._parts], axis=1)
        work = np.flatnonzero(np.concatenate(self._kinds) == KERNEL)
        work = work[~np.isin(work, [i for i, _ in self._calls])]
        work = work[np.lexsort((wide[START, work], wide[STREAM, work]))]
        cut = list[tuple[int, int]]()
        for stream in np.unique(wide[STREAM, work]):
            own = work[wide[STREAM, work] == stream]
            start, end = wide[START, own], wide[END, own]
            # The first end of all that begins later.
            least = np.minimum.accumulate(end[::-1])[::-1]
            over = np.flatnonzero((end[:-1] > least[1:]) & (start[1:] > start[:-1]))
            cut += zip(own[over].tolist(), start[over + 1].tolist(), strict=True)
        for number, end in cut:
            self._parts[number // ROWS].wide[END, number % ROWS] = end
        return len(cut)

    def _keep_computing_passes(self) -> None:
        """Leave out what passes do on other streams than that of their computing.

        The profiler annotates a pass on each stream that it has work on; there it waits for others.
        """
        found = list[tuple[int, tuple[int, int], int]]()  # number, name and step, stream
        for number, (rows, kinds) in enumerate(zip(self._parts, self._kinds, strict=True)):
            passes = np.flatnonzero(kinds == PASS)
            steps = self._steps_of(rows.wide[START, passes]).tolist()
            keys = zip((rows.names[passes] >> 2).tolist(), steps, strict=True)
            on = rows.wide[STREAM, passes].tolist()
            found += zip((number * ROWS + passes).tolist(), keys, on, strict=True)
        streams = {stream for *_, stream in found}
        if len(streams) < 2:
            return
        computed = self._computed()
        main = max(sorted(streams), key=lambda stream: computed[stream])
        there = {key for _, key, stream in found if stream == main}
        left_out = [i for i, key, stream in found if stream != main and key in there]
        for number, kept in enumerate(self._kept):
            self._kept[number] = kept[~np.isin(number * ROWS + kept, left_out)]

    def _computed(self) -> Counter[int]:
        """Return the time of kernels that compute, by stream."""
        calls = [i for i, _ in self._calls]
        computed = Counter[int]()
        for number, (rows, kinds) in enumerate(zip(self._parts, self._kinds, strict=True)):
            at = np.flatnonzero(kinds == KERNEL)
            at = at[~np.isin(number * ROWS + at, calls)]
            streams, places = np.unique(rows.wide[STREAM, at], return_inverse=True)
            lasted = np.zeros(streams.size, np.int64)
            np.add.at(lasted, places, rows.wide[END, at] - rows.wide[START, at])
            computed.update(dict(zip(streams.tolist(), lasted.tolist(), strict=True)))
        return computed

    def _ops(self, number: int, calls: list[tuple[int, Call]]) -> _Columns:
        rows, kept = self._parts[number], self._kept[number]
        names, kinds = rows.names[kept] >> 2, self._kinds[number][kept]
        called = [self._call(call, self._short[rows.names[i] >> 2]) for i, call in calls]
        places = np.searchsorted(kept, [i for i, _ in calls])

        def of_calls(values: Sequence[str | None], others: Mapping[int, str]) -> pa.Array:
            """Return a column with these values for the calls, and others for rows of a kind."""
            meanings = list(dict.fromkeys([None, *others.values(), *values]))
            column = np.zeros(kept.size, np.int32)
            for kind, value in others.items():
                column[kinds == kind] = meanings.index(value)
            column[places] = [meanings.index(value) for value in values]
            return words(column, meanings)

        if self._has_passes:
            # The kernels of a pass are parts of it: their time must not count twice.
            category = of_calls([None] * len(called), {PASS: "compute"})
            of_pass = np.where(kinds == PASS, names, -1)
            kind = words(of_pass, [named and named.kind for named in self._named])
        else:
            category = of_calls([_category(call) for call in called], {KERNEL: "compute"})
            kind = of_calls([self._call_kind(call) for call in called], {KERNEL: "other"})
        sizes, batches = (np.full(kept.size, NULL, np.int64) for _ in range(2))
        sizes[places] = [NULL if size is None else size for size in map(_bytes, called)]
        passes = np.flatnonzero(kinds == PASS)
        batches[passes] = [p.micro_batch for n in names[passes] if (p := self._named[n])]
        # That of a pass only says where it was annotated.
        own = np.where(kinds == PASS, -1, rows.wide[STREAM, kept])
        streams, at = np.unique(own, return_inverse=True)
        return self._shared(number, kept) | {
            "op": words(names, self._short),
            "description": words(names, self._texts),
            "category": category,
            "kind": kind,
            "stream": words(at, [None if s < 0 else str(s) for s in streams.tolist()]),
            "group_kind": of_calls([self._kind(call) for call in called], {}),
            "dtype": of_calls([call.dtype for call in called], {}),
            "bytes": numbers(sizes, pa.int64()),
            "micro_batch": numbers(batches, pa.int32()),
        }

    def _comms(self, number: int, calls: list[tuple[int, Call]]) -> _Columns:
        places = np.array([i for i, _ in calls], np.int64)
        names = (self._parts[number].names[places] >> 2).tolist()
        found = [
            self._call(call, self._short[name])
            for (_, call), name in zip(calls, names, strict=True)
        ]
        return self._shared(number, places) | {
            "group_kind": [self._kind(call) for call in found],
            "dtype": [call.dtype for call in found],
            "bytes": [_bytes(call) for call in found],
            "collective": [call.collective for call in found],
            "group_size": [_size(call) for call in found],
            "raw_func": [self._short[name] for name in names],
            "raw_group": [_group_text(call) for call in found],
            "attributes": [_attributes(call) for call in found],
        }

    def _call_kind(self, call: Call) -> str | None:
        if call.collective is None or call.collective in ("send", "recv"):
            return call.collective
        sums = call.collective in ("all_reduce", "reduce_scatter")
        return "gradient_sync" if sums and self._kind(call) == "dp" else "other"

    def _shared(self, number: int, places: Longs) -> _Columns:
        """Return the columns that operations and communications share."""
        rows = self._parts[number]
        starts, ends = rows.wide[START, places], rows.wide[END, places]
        stage = stage_of(self._rank, self.sizes)
        return {
            "source_id": np.full(places.size, self._source, np.int32),
            "line": rows.wide[AT_LINE, places],
            "rank": np.full(places.size, self._rank, np.int32),
            "stage": pa.nulls(places.size, pa.int32())
            if stage is None
            else np.full(places.size, stage, np.int32),
            "step": self._steps_of(starts),
            "seq": self._seqs[number * ROWS + places],
            "start_ns": starts,
            "end_ns": ends,
            "duration_ns": ends - starts,
        }

    def _exchanges(self) -> dict[int, Call]:
        """Return the kernels and copies that exchange data without a library, by number."""
        found = [4 * i for i, name in enumerate(self._short) if is_exchange(name)]
        kinds = [token + kind for token in found for kind in (KERNEL, COPY)]
        if not kinds:
            return {}
        rows = [np.flatnonzero(np.isin(p.names[: p.size[0]], kinds)) for p in self._parts]
        return {number * ROWS + int(i): Call() for number, at in enumerate(rows) for i in at}

    def _steps(self) -> _Columns:
        steps = self._events.host_steps
        return {
            "source_id": [self._source] * len(steps),
            "line": [line for _, _, line in steps.values()],
            "step": list(steps),
            "step_time_ns": [end - start for start, end, _ in steps.values()],
            "rank": [self._rank] * len(steps),
            "time_basis": ["own"] * len(steps),
        }

    @functools.cached_property
    def _texts(self) -> list[str]:
        """Names by their token."""
        return [_text(self._events.names.raw(i)) for i in range(len(self._events.names))]

    @functools.cached_property
    def _named(self) -> list[Pass | None]:
        """Passes by the token of their name."""
        return [pass_of(text) for text in self._texts]

    @functools.cached_property
    def _short(self) -> list[str]:
        """Names of operations by their token."""
        pairs = zip(self._named, self._texts, strict=True)
        return [named.op if named else kernel_name(text) for named, text in pairs]

    @functools.cached_property
    def _seqs(self) -> Longs:
        """Numbers of the rows in order of their starts, from 1."""
        starts = [
            part.wide[START, kept] for part, kept in zip(self._parts, self._kept, strict=True)
        ]
        places = np.concatenate([number * ROWS + kept for number, kept in enumerate(self._kept)])
        seqs = np.empty(ROWS * len(self._parts), np.int64)
        order = places[np.argsort(np.concatenate(starts), kind="stable")]
        seqs[order] = np.arange(1, order.size + 1)
        return seqs

    @functools.cached_property
    def _begun(self) -> tuple[Longs, Longs]:
        """Starts of the steps in their order, and the steps."""
        begun = {step: start for step, (start, _, _) in self._events.host_steps.items()}
        begun |= self._events.device_steps
        ordered = sorted(begun, key=lambda step: begun[step]) or [0]
        return np.array([begun.get(s, 0) for s in ordered], np.int64), np.array(ordered, np.int64)

    def _steps_of(self, starts: Longs) -> Longs:
        """Return the step of each start: the last that had begun; 0 in a trace without steps."""
        begun, steps = self._begun
        places = np.searchsorted(begun, starts, side="right") - 1
        return steps[np.maximum(places, 0)]

    def _call(self, call: Call, name: str) -> Call:
        """Return a call whose collective is named, if only by its kernel."""
        return call if call.collective else call._replace(collective=collective_of(name))

    def _kind(self, call: Call) -> str | None:
        """Return the kind of a call's group: as it is described, else by its ranks."""
        listed = self._groups.get(call.group or "", Group())
        described = group_of(call.group_text) or group_of(listed.description)
        return described or group_by_ranks(listed.ranks, self._rank, self.sizes)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _category(call: Call) -> str | None:
    if call.collective is None:
        return None
    return "p2p" if call.collective in ("send", "recv") else "collective"


def _size(call: Call) -> int | None:
    size = call.group_size
    return size if size is not None and 0 < size <= LARGEST else None


def _bytes(call: Call) -> int | None:
    elements = call.elements[1] if call.collective == "recv" else call.elements[0]
    width = width_of(call.dtype)
    if elements is None or width is None or elements * width > LONGEST_NS:
        return None
    return elements * width


def _group_text(call: Call) -> str | None:
    described = call.group_text not in (None, "", "undefined")
    return call.group_text if described else call.group


def _attributes(call: Call) -> list[tuple[str, str]]:
    size = None if call.group_size is None else str(call.group_size)
    pairs = (("group", call.group), ("group_size", size), ("ranks", call.ranks))
    return [(key, value) for key, value in pairs if value]
