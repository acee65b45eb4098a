"""Make the rows of one document, a batch at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tracelake.formats.documents import batch_of
from tracelake.formats.kineto.events import LONGEST_NS, Call, Events, Group
from tracelake.formats.kineto.names import (
    collective_of,
    group_by_ranks,
    group_of,
    kernel_name,
    width_of,
)
from tracelake.formats.kineto.scan import AT_LINE, END, ROWS, START, STREAM, Rows
from tracelake.kernels.arrow import words
from tracelake.kernels.numbers import Longs
from tracelake.schema.topology import stage_of

_Columns = dict[str, pa.Array | Sequence[object]]


class DocumentRows:
    """The rows of one document, which are made when they are asked for.

    Attributes:
        counts: Number of rows by table.
    """

    def __init__(self, events: Events, source: int, rank: int, sizes: Mapping[str, int]) -> None:
        self._events = events
        self._source = source
        self._rank = rank
        self._sizes = sizes
        self._parts = events.rows
        self._calls = sorted(events.calls().items())
        self._groups = events.groups()
        self.counts = {
            "ops": sum(int(part.size[0]) for part in self._parts),
            "comms": len(self._calls),
            "train_steps": len(events.host_steps),
        }

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, in order of their lines."""
        if table == "train_steps":
            yield batch_of(table, self._steps())
            return
        for number, rows in enumerate(self._parts):
            first = number * ROWS
            calls = [(i - first, call) for i, call in self._calls if first <= i < first + ROWS]
            if table == "ops":
                yield batch_of(table, self._ops(rows, first, calls))
            elif calls:
                yield batch_of(table, self._comms(rows, first, calls))

    def _ops(self, rows: Rows, first: int, calls: list[tuple[int, Call]]) -> _Columns:
        codes = rows.names[: rows.size[0]]
        everything = np.arange(codes.size)
        names, kernels = codes >> 1, (codes & 1).astype(np.bool_)
        found = [self._call(call, self._texts[names[i]]) for i, call in calls]
        places = np.array([i for i, _ in calls], np.int64)

        def of_calls(values: Sequence[Any], others: Sequence[Any] = (None,)) -> pa.Array:
            """Return a column with these values for the calls, and others for the rest."""
            meanings = list(dict.fromkeys([*others, *values]))
            column = (
                np.zeros(codes.size, np.int32) if len(others) == 1 else kernels.astype(np.int32)
            )
            column[places] = [meanings.index(value) for value in values]
            return words(column, meanings)

        sizes = np.zeros(codes.size, np.int64)
        missing = np.ones(codes.size, np.bool_)
        for (i, _), call in zip(calls, found, strict=True):
            size = _bytes(call)
            sizes[i], missing[i] = size or 0, size is None
        streams = rows.wide[STREAM, : codes.size]
        distinct, at = np.unique(streams, return_inverse=True)
        return self._shared(rows, first, everything) | {
            "op": words(names, self._short),
            "description": words(names, self._texts),
            "category": of_calls([_category(call) for call in found], (None, "compute")),
            "kind": of_calls([self._work(call) for call in found], (None, "other")),
            "stream": words(at, [None if s < 0 else str(s) for s in distinct.tolist()]),
            "group_kind": of_calls([self._kind(call) for call in found]),
            "dtype": of_calls([call.dtype for call in found]),
            "bytes": pa.array(sizes, mask=missing),
        }

    def _comms(self, rows: Rows, first: int, calls: list[tuple[int, Call]]) -> _Columns:
        places = np.array([i for i, _ in calls], np.int64)
        names = (rows.names[places] >> 1).tolist()
        found = [
            self._call(call, self._texts[name])
            for (_, call), name in zip(calls, names, strict=True)
        ]
        return self._shared(rows, first, places) | {
            "group_kind": [self._kind(call) for call in found],
            "dtype": [call.dtype for call in found],
            "bytes": [_bytes(call) for call in found],
            "collective": [call.collective for call in found],
            "group_size": [call.group_size for call in found],
            "raw_func": [self._short[name] for name in names],
            "raw_group": [_group_text(call) for call in found],
            "attributes": [_attributes(call) for call in found],
        }

    def _work(self, call: Call) -> str | None:
        """Return what a communication does, as `ops.kind`."""
        if call.collective is None or call.collective in ("send", "recv"):
            return call.collective
        sums = call.collective in ("all_reduce", "reduce_scatter")
        return "gradient_sync" if sums and self._kind(call) == "dp" else "other"

    def _shared(self, rows: Rows, first: int, places: Longs) -> _Columns:
        """Return the columns that operations and communications share."""
        starts, ends = rows.wide[START, places], rows.wide[END, places]
        stage = stage_of(self._rank, self._sizes)
        return {
            "source_id": np.full(places.size, self._source, np.int32),
            "line": rows.wide[AT_LINE, places],
            "rank": np.full(places.size, self._rank, np.int32),
            "stage": pa.nulls(places.size, pa.int32())
            if stage is None
            else np.full(places.size, stage, np.int32),
            "step": self._steps_of(starts),
            "seq": self._seqs[first + places],
            "start_ns": starts,
            "end_ns": ends,
            "duration_ns": ends - starts,
        }

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
    def _short(self) -> list[str]:
        return [kernel_name(text) for text in self._texts]

    @functools.cached_property
    def _seqs(self) -> Longs:
        """Numbers of the rows in order of their starts, from 1."""
        starts = [part.wide[START, : part.size[0]] for part in self._parts]
        order = np.argsort(np.concatenate(starts), kind="stable")
        seqs = np.empty(order.size, np.int64)
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
        return described or group_by_ranks(listed.ranks, self._rank, self._sizes)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _category(call: Call) -> str | None:
    if call.collective is None:
        return None
    return "p2p" if call.collective in ("send", "recv") else "collective"


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
    said = (("group", call.group), ("group_size", size), ("ranks", call.ranks))
    return [(key, value) for key, value in said if value]
