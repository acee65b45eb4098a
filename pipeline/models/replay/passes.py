"""Compiled passes over the graph of one step: its order, and its end under given lengths.

Times and maxima are arrays of a row per node and a column per scenario, so that one pass replays
several scenarios. An event is twice the node's number, plus 1 where the node ends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import kernel

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


@kernel
def link(
    nodes: int,
    sources: Int32s,
    targets: Int32s,
    first: Int32s,
    listed: Int32s,
    place: Int32s,
) -> None:
    """List the targets of every source: those of `n` are listed[first[n]:first[n + 1]].

    Pairs whose source is negative are left out.
    """
    for n in range(nodes + 1):
        first[n] = 0
    for i in range(sources.shape[0]):
        if sources[i] >= 0:
            first[sources[i] + 1] += 1
    for n in range(nodes):
        first[n + 1] += first[n]
        place[n] = first[n]
    for i in range(sources.shape[0]):
        if sources[i] >= 0:
            listed[place[sources[i]]] = targets[i]
            place[sources[i]] += 1


@kernel
def order(  # noqa: PLR0912 - calls between kernels cost a compilation each
    groups: Int32s,
    next_first: Int32s,
    next_listed: Int32s,
    member_first: Int32s,
    member_listed: Int32s,
    before: Int32s,
    waiting: Int32s,
    missing: Int32s,
    events: Int32s,
    found: Int64s,
) -> None:
    """Order the events of a step so that each comes after those it depends on.

    Args:
        groups: Per node the numbers of its two groups, -1 for none.
        next_first: With `next_listed`, the nodes that start after each node; see `link`.
        member_first: With `member_listed`, the members of each group.
        before: Per node, how many nodes have to end before it starts; used up.
        waiting: Per node, how many groups it is in; used up.
        missing: Per group, how many members have not started; used up.
        events: Filled with the events.
        found: Filled with their number: fewer than 2 per node where nodes wait for each other.
    """
    nodes = before.shape[0]
    tail = 0
    for n in range(nodes):
        if before[n] == 0:
            events[tail] = 2 * n
            tail += 1
    head = 0
    while head < tail:
        event = events[head]
        head += 1
        n = event >> 1
        if event & 1:
            for i in range(next_first[n], next_first[n + 1]):
                after = next_listed[i]
                before[after] -= 1
                if before[after] == 0:
                    events[tail] = 2 * after
                    tail += 1
        elif waiting[n] == 0:
            events[tail] = event + 1
            tail += 1
        else:
            for side in range(2):
                group = groups[n, side]
                if group >= 0:
                    missing[group] -= 1
                    if missing[group] == 0:
                        for i in range(member_first[group], member_first[group + 1]):
                            member = member_listed[i]
                            waiting[member] -= 1
                            if waiting[member] == 0:
                                events[tail] = 2 * member + 1
                                tail += 1
    found[0] = tail


@kernel
def times(  # noqa: PLR0912 - as above
    events: Int32s,
    prev_first: Int32s,
    prev_listed: Int32s,
    groups: Int32s,
    keys: Int32s,
    wanted: Int32s,
    inside: Int64s,
    outside: Int64s,
    delays: Int64s,
    ends: Int64s,
    latest: Int64s,
    last: Int64s,
) -> None:
    """Replay a step: one column per wanted key, where its nodes have other lengths.

    Args:
        prev_first: With `prev_listed`, the nodes that end before each node starts.
        keys: Per node its key, such as its rank.
        inside: Per node its length in the column of its key.
        outside: Per node its length in the other columns.
        delays: Per node how long after the nodes before it it starts.
        ends: Filled with the nodes' ends.
        latest: Filled with the latest start of the members of each group.
        last: Filled with the latest end of the step.
    """
    columns = wanted.shape[0]
    for k in range(columns):
        last[k] = 0
    for i in range(events.shape[0]):
        n = events[i] >> 1
        if events[i] & 1 == 0:
            for k in range(columns):
                ends[n, k] = 0
            for j in range(prev_first[n], prev_first[n + 1]):
                prev = prev_listed[j]
                for k in range(columns):
                    ends[n, k] = max(ends[n, k], ends[prev, k])
            delay = delays[n]
            for k in range(columns):
                ends[n, k] += delay
            for side in range(2):
                group = groups[n, side]
                if group >= 0:
                    for k in range(columns):
                        latest[group, k] = max(latest[group, k], ends[n, k])
        else:
            for side in range(2):
                group = groups[n, side]
                if group >= 0:
                    for k in range(columns):
                        ends[n, k] = max(ends[n, k], latest[group, k])
            key, own, others = keys[n], inside[n], outside[n]
            for k in range(columns):
                ends[n, k] += own if wanted[k] == key else others
                last[k] = max(last[k], ends[n, k])
