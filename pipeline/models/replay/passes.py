"""Compiled passes over the graph of steps: its order, and their ends under given lengths.

Times and maxima are arrays of a row per node and a column per scenario, so that one pass replays
`LANES` scenarios. An event is twice the node's number, plus 1 where the node ends with a group.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracelake.kernels.compiled import (
    add_lanes,
    choose_lanes,
    equal_lanes,
    kernel,
    lanes_at,
    largest_lanes,
    put_lanes,
)

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
    prev_first: Int32s,
    prev_listed: Int32s,
    next_first: Int32s,
    next_listed: Int32s,
    member_first: Int32s,
    member_listed: Int32s,
    state: Int32s,
    nodes: Int32s,
    before_first: Int32s,
    before_listed: Int32s,
    numbers: Int32s,
    events: Int32s,
) -> int:
    """Order the events of steps so that each comes after those it depends on.

    Nodes get places in the order in which they start, and groups numbers in that of their first
    members. A node without a group ends when it starts: it has no event of its end.

    Args:
        groups: Per node the first nodes of its two groups, -1 for none.
        prev_first: With `prev_listed`, the nodes that end before each node starts; see `link`.
        next_first: With `next_listed`, the nodes that start after each node.
        member_first: With `member_listed`, the members of each group, by its first node.
        state: A row per node for what is known so far: the nodes before it that have not ended, its
            groups with members that have not started, its place; of the group whose first node it
            is the members that have not started, and its number.
        nodes: Filled with the node at each place.
        before_first: Filled, with `before_listed`, with the places before each place.
        numbers: Filled with the numbers of the two groups of each place, -1 for none.
        events: Filled with the events, of places.

    Returns:
        The number of events that have an order: fewer than all where nodes wait for each other.
    """
    size = groups.shape[0]
    tail, place, listed, known = 0, 0, 0, 0
    for n in range(size):
        state[n, 0] = prev_first[n + 1] - prev_first[n]
        state[n, 1] = (groups[n, 0] >= 0) + (groups[n, 1] >= 0)
        state[n, 3] = member_first[n + 1] - member_first[n]
        state[n, 4] = -1
        if state[n, 0] == 0:
            events[tail] = 2 * n
            tail += 1
    head = 0
    before_first[0] = 0
    while head < tail:
        n, ends = events[head] >> 1, events[head] & 1
        if ends == 0:
            nodes[place] = n
            state[n, 2] = place
            for i in range(prev_first[n], prev_first[n + 1]):
                before_listed[listed] = state[prev_listed[i], 2]
                listed += 1
            for side in range(2):
                group = groups[n, side]
                numbers[place, side] = -1
                if group >= 0:
                    if state[group, 4] < 0:
                        state[group, 4] = known
                        known += 1
                    numbers[place, side] = state[group, 4]
                    state[group, 3] -= 1
                    if state[group, 3] == 0:
                        for i in range(member_first[group], member_first[group + 1]):
                            member = member_listed[i]
                            state[member, 1] -= 1
                            if state[member, 1] == 0:
                                events[tail] = 2 * member + 1
                                tail += 1
            place += 1
            before_first[place] = listed
        if ends == 1 or (groups[n, 0] < 0 and groups[n, 1] < 0):
            for i in range(next_first[n], next_first[n + 1]):
                after = next_listed[i]
                state[after, 0] -= 1
                if state[after, 0] == 0:
                    events[tail] = 2 * after
                    tail += 1
        events[head] = 2 * state[n, 2] + ends
        head += 1
    return tail


@kernel
def times(
    events: Int32s,
    prev_first: Int32s,
    prev_listed: Int32s,
    groups: Int32s,
    steps: Int32s,
    keys: Int32s,
    wanted: Int64s,
    inside: Int64s,
    outside: Int64s,
    delays: Int64s,
    ends: Int64s,
    latest: Int64s,
    last: Int64s,
) -> None:
    """Replay steps: one column per wanted key, where its nodes have other lengths.

    Args:
        events: As `order` gives them.
        prev_first: With `prev_listed`, the nodes that end before each node starts.
        steps: Per node the row of its step in `last`.
        keys: Per node its key, such as its rank.
        wanted: A row of keys.
        inside: Per node its length in the column of its key.
        outside: Per node its length in the other columns.
        delays: Per node how long after the nodes before it it starts.
        ends: Filled with the nodes' ends.
        latest: A row per group: filled with the latest start of its members.
        last: A row per step: filled with its latest end.
    """
    none = equal_lanes(0)
    wanted_keys = lanes_at(wanted, 0)
    for step in range(last.shape[0]):
        put_lanes(last, step, none)
    for group in range(latest.shape[0]):
        put_lanes(latest, group, none)
    for i in range(events.shape[0]):
        n = events[i] >> 1
        one, other = groups[n, 0], groups[n, 1]
        time = none
        if events[i] & 1 == 0:
            for j in range(prev_first[n], prev_first[n + 1]):
                time = largest_lanes(time, lanes_at(ends, prev_listed[j]))
            time = add_lanes(time, equal_lanes(delays[n]))
            if one >= 0:
                put_lanes(latest, one, largest_lanes(lanes_at(latest, one), time))
            if other >= 0:
                put_lanes(latest, other, largest_lanes(lanes_at(latest, other), time))
            if one >= 0 or other >= 0:
                continue
        if one >= 0:
            time = lanes_at(latest, one)
        if other >= 0:
            time = largest_lanes(time, lanes_at(latest, other))
        length = choose_lanes(
            equal_lanes(keys[n]), wanted_keys, equal_lanes(inside[n]), equal_lanes(outside[n])
        )
        time = add_lanes(time, length)
        put_lanes(ends, n, time)
        put_lanes(last, steps[n], largest_lanes(lanes_at(last, steps[n]), time))
