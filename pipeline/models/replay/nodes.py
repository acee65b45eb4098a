"""Nodes of runs: their operations, cut at the calls inside them, and what each comes after.

A node's predecessors are the node of its rank before it, the sender of what it receives where the
two do not end together, and, where ranks have several streams or a message is implied, the nodes
that the rows say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tracelake.models.replay.cutting import (
    NEVER,
    OPTIMIZER,
    OTHER,
    RECEIVE,
    SEND,
    cut,
    meet,
    number,
)
from tracelake.models.replay.graph import linked
from tracelake.models.replay.passes import Int32s, Int64s

Rows = Mapping[str, npt.NDArray[Any]]
"""Columns of the rows of runs; texts as numbers."""

NO_OPERATION = ("comm", "message", "after")
"""Parts of rows that are about an operation."""
_ROLES = {"optimizer": OPTIMIZER, "p2p_recv": RECEIVE, "p2p_send": SEND}
# Of the meetings of a node: its call, that of the send fused with it, and of optimizers.
_SIDES = np.array([0, 1, 0], np.int32)
_OTHER_ROLES = np.array([SEND, OPTIMIZER], np.int32)
_PAPER_LEAST_NS = -10_000_000


@dataclass(frozen=True)
class Nodes:
    """The nodes of runs by run, step, rank and start, numbered from 0; -1 is none.

    Attributes:
        first: First node of every step.
        rows: Row of the operation that it is a part of.
        pieces: Place in the operation: calls are odd, a message before it is -1.
        comms: It is a communication.
        prev: Node of the rank before it, where ranks have one stream.
        senders: Node that sent what it receives, where they do not end together.
        after: Nodes in order, and for each another one that ends before it starts.
        groups: First nodes of the groups that it ends with: its own, that of the send that is
            fused with it; and where ranks have several streams, that of the published analysis.
        length_ns: Time after the last member of its groups had started, at least 0.
        raw_ns: The same, 0 only where it is -10 ms or less: the rule of the published analysis.
        delay_ns: Start after the end of what it comes after.
    """

    first: Int64s
    rows: Int64s
    kinds: Int32s
    pieces: Int32s
    comms: npt.NDArray[np.bool_]
    prev: Int32s
    senders: Int32s
    after: tuple[Int32s, Int32s]
    groups: Int32s
    length_ns: Int64s
    raw_ns: Int64s
    delay_ns: Int64s

    @classmethod
    def of(cls, rows: Rows, parts: Sequence[str]) -> Self:
        """Make the nodes of the rows of runs.

        Args:
            parts: What the numbers in the column `part` mean.
        """
        is_call, is_message, is_after = (are(rows, parts, part) for part in NO_OPERATION)
        ops = np.flatnonzero(~(is_call | is_message | is_after))
        runs = rows["run_id"].astype(np.int64) << 32
        lines, line_steps = _lines(runs[ops] + rows["step"][ops], rows["rank"][ops])
        order = np.lexsort((rows["seq"][ops], rows["from_ns"][ops], lines))
        ops, lines = ops[order], lines[order]
        sources = np.flatnonzero(is_message | is_after)
        op_of, source_of = _operations(runs, rows, ops, sources)

        calls = np.flatnonzero(is_call & (op_of >= 0))
        calls_first, calls_listed = linked(
            len(ops), op_of[calls].astype(np.int32), np.arange(len(calls), dtype=np.int32)
        )
        messages = np.flatnonzero(is_message & (op_of >= 0))
        message_of = np.full(len(ops), -1, np.int64)
        message_of[op_of[messages]] = messages
        message_ns = np.where(message_of < 0, NEVER, rows["from_ns"][message_of])

        size = len(ops) + 2 * len(calls) + len(messages)
        op, call, pieces = (np.empty(size, np.int32) for _ in range(3))
        start, end = np.empty(size, np.int64), np.empty(size, np.int64)
        cut(
            lines, rows["from_ns"][ops], rows["to_ns"][ops], rows["seq"][ops], message_ns,
            calls_first, calls_listed, rows["sub"][calls], rows["from_ns"][calls],
            rows["to_ns"][calls], op, call, pieces, start, end,
        )  # fmt: skip
        own = rows_of = ops[op]
        if len(calls):
            own = np.where(call < 0, own, calls[call])
        own = np.where(pieces < 0, message_of[op], own)
        streams = rows["replica"][rows_of] >= 0
        step_of = line_steps[lines[op]]
        follows = np.zeros(size, np.bool_)
        follows[1:] = (np.diff(lines[op]) == 0) & ~streams[1:]
        first = np.flatnonzero(np.diff(step_of, prepend=-1))

        whole = (own == rows_of) & (pieces == 2 * np.diff(calls_first)[op])
        roles = np.array([_ROLES.get(part, OTHER) for part in parts], np.int32)
        groups, latest, senders = _met(
            np.where(whole | (call >= 0), rows["call"][own].view(np.int64), 0),
            np.where(whole, rows["sent_call"][rows_of].view(np.int64), 0),
            rows["tick_ns"][rows_of], roles[rows["part"][own]], step_of, start, end,
        )  # fmt: skip
        known = (op_of[sources] >= 0) & (source_of >= 0)
        numbers = np.arange(size, dtype=np.int32)
        firsts, lasts = np.zeros(len(ops), np.int32), np.zeros(len(ops), np.int32)
        firsts[op[::-1]], lasts[op] = numbers[::-1], numbers
        after = firsts[op_of[sources[known]]], lasts[source_of[known]]
        by_node = np.argsort(after[0], kind="stable")
        after = after[0][by_node], after[1][by_node]

        free = np.where(follows, np.roll(end, 1), NEVER)
        np.maximum(free, latest[:, 2], out=free)
        np.maximum.at(free, after[0], end[after[1]])
        origins = np.minimum.reduceat(start, first)[step_of]
        raw = end - np.maximum(start, np.where(streams, latest[:, 1], latest[:, 0]))
        groups[:, 2] = np.where(streams, groups[:, 2], -1)
        return cls(
            first=first,
            rows=rows_of,
            kinds=rows["kind"][own],
            pieces=pieces,
            comms=(rows["comm"][rows_of] > 0) | (own != rows_of),
            prev=np.where(follows, numbers - 1, -1).astype(np.int32),
            senders=senders,
            after=after,
            groups=groups,
            length_ns=np.maximum(0, end - np.maximum(start, latest[:, 0])),
            raw_ns=np.where(raw > _PAPER_LEAST_NS, raw, 0),
            delay_ns=start - np.where(free == NEVER, origins, free),
        )


def are(rows: Rows, parts: Sequence[str], *wanted: str) -> npt.NDArray[np.bool_]:
    """Return which rows have one of the wanted parts."""
    return np.array([part in wanted for part in parts])[rows["part"]]


def numbered(high: npt.NDArray[Any], low: npt.NDArray[Any]) -> tuple[Int32s, Int32s]:
    """Number pairs of keys in the order in which they come first.

    Returns:
        The number of every pair, and the first place of every number.
    """
    size = len(high)
    slots = np.full(1 << (2 * size).bit_length(), -1, np.int32)
    first, numbers, found = (
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.zeros(1, np.int64),
    )
    number(
        np.ascontiguousarray(high, np.int64), np.ascontiguousarray(low, np.int64),
        slots, first, numbers, found,
    )  # fmt: skip
    return numbers, first[: found[0]]


def _lines(steps: Int64s, ranks: Int32s) -> tuple[Int32s, Int32s]:
    """Number the steps of ranks in order.

    Returns:
        The number of every operation's line, and per line the place of its step among the steps.
    """
    numbers, first = numbered(steps, ranks)
    order = np.lexsort((ranks[first], steps[first]))
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    ordered = steps[first][order]
    return places[numbers], np.cumsum(np.diff(ordered, prepend=ordered[:1]) != 0, dtype=np.int32)


def _operations(runs: Int64s, rows: Rows, ops: Int64s, sources: Int64s) -> tuple[Int64s, Int64s]:
    """Return the operation that each row is about, and of `sources` the other one; -1 for none."""
    size = len(rows["rank"])
    numbers, first = numbered(
        np.concatenate([runs + rows["rank"], runs[sources] + rows["source_rank"][sources]]),
        np.concatenate([rows["seq"], rows["source_seq"][sources]]),
    )
    places = np.full(len(first), -1, np.int64)
    places[numbers[ops]] = np.arange(len(ops))
    return places[numbers[:size]], places[numbers[size:]]


def _met(
    calls: Int64s,
    sent: Int64s,
    ticks: Int64s,
    roles: Int32s,
    steps: Int32s,
    start: Int64s,
    end: Int64s,
) -> tuple[Int32s, Int64s, Int32s]:
    """Return groups, latest starts and senders of nodes; see `meet`.

    Args:
        calls: Call of each node, and `sent` that of the send that is fused with it, 0 for none.
        ticks: Of optimizers, which meet in their step; else -1.
        roles: What nodes do in their call.
    """
    size = len(calls)
    members = np.flatnonzero(calls), np.flatnonzero(sent), np.flatnonzero(ticks >= 0)
    sizes = [len(found) for found in members]
    nodes = np.concatenate(members).astype(np.int32)
    meetings, first = numbered(
        np.repeat([0, 0, 1], sizes),
        np.concatenate([calls[members[0]], sent[members[1]], steps[members[2]]]),
    )
    groups, latest = np.empty((size, 3), np.int32), np.empty((size, 3), np.int64)
    senders = np.empty(size, np.int32)
    meet(
        nodes, meetings,
        np.concatenate([roles[members[0]], np.repeat(_OTHER_ROLES, sizes[1:])]),
        np.repeat(_SIDES, sizes), ticks[nodes], start, end,
        np.empty((len(first), 2), np.int64), np.empty((len(first), 8), np.int64),
        groups, latest, senders,
    )  # fmt: skip
    return groups, latest, senders
